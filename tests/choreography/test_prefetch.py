"""Prefetching: text known in advance is encoded beside running decodes, without any effect on others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import anyio
import pytest

from agentcho import Choreographer, Game, Prefill, View, replay
from agentcho.choreography.prefetch import MOST, Prefetch
from agentcho.choreography.requests import Request, RequestResult
from agentcho.config import Leakage, ReusePolicy
from agentcho.errors import AgentchoError, RequestError
from agentcho.message import EVERYONE, Audience, Metadata
from agentcho.protocol.call import DEFAULT_PRIORITY, Call, EncodingId, SchedulingPriority
from agentcho.provenance.drafts import Draft
from agentcho.provenance.resolver import Resolver
from agentcho.provenance.views import After, ReadSet
from agentcho.records.transcript import own_records
from agentcho.reuse.first_k import FirstK
from agentcho.testing import FakeEngine

from .stage import Interrupted, Play, Talker, game, nothing_left, speech, talker

BOB = Audience(frozenset({"bob"}))


def known(engine: FakeEngine, id: int) -> bool:
    """Whether an id is stored."""
    return engine.finished(id)


def test_it_joins_a_step_to_which_nobody_brings_anything(play: Play) -> None:
    engine, made = talker(6), list[RequestResult]()

    async def work() -> None:
        async with Choreographer(engine) as c:
            c.offer(c, lambda: Request((Prefill("rules"),), on_done=made.append))
            assert engine.steps == 0
            await c.tasks.together(c.run(speech(6)))
            c.release([made[0].made[0].id])

    play(work)
    assert [made[0].made[0].id in batch for batch in engine.batches] == [False, True] + [False] * (engine.steps - 2)
    assert made[0].made[0].words.text == "rules"


def test_it_waits_where_somebody_brings_something_and_is_nobodys_turn(play: Play) -> None:
    """Requests that are waited for go first: in the choice of the step, and in the queue of the engine."""
    turns = list[bool]()

    class Noting(FakeEngine):
        def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
            turns.append(turn.ahead)
            return super().submit(calls, turn)

    engine, made = Noting(lambda call, prompt: "word " * 6), list[RequestResult]()

    async def work() -> None:
        async with Choreographer(engine) as c:
            c.offer(c, lambda: Request((Prefill("rules"),), on_done=made.append))
            heard = anyio.Event()

            async def later() -> None:
                await heard.wait()
                await c.run(speech(2))

            await c.tasks.together(c.run(speech(6)._replace(on_token=lambda text: heard.set())), later())

    play(work)
    assert [made[0].made[0].id in batch for batch in engine.batches[:4]] == [False, False, True, False]
    assert turns == [False, False, True]


def test_nobody_makes_it_while_nobody_speaks(play: Play) -> None:
    engine = talker(1)

    async def work() -> None:
        async with Choreographer(engine) as c:
            c.offer(c, lambda: pytest.fail("nobody speaks"))
            await c.run(Request((Prefill("one"),)))
            await c.run(Request((Prefill("two"),)))

    play(work)


def test_what_is_not_needed_any_more_is_not_made(play: Play) -> None:
    engine = talker(4)

    async def work() -> None:
        async with Choreographer(engine) as c:
            c.offer(c, lambda: None)
            await c.run(speech(4))
            await c.run(speech(4))

    play(work)
    assert all(len(batch) == 1 for batch in engine.batches)


def test_what_cannot_be_made_fails_nobody(play: Play) -> None:
    engine = talker(4)

    async def work() -> None:
        async with Choreographer(engine) as c:
            c.offer(c, lambda: Request((Prefill("over nothing", (99,)),), on_done=lambda result: pytest.fail("made")))
            result = await c.run(speech(4))
            assert result.made

    play(work)


def test_what_cannot_even_be_asked_for_is_dropped(play: Play) -> None:
    engine, made = talker(6), list[RequestResult]()

    def broken() -> Request:
        raise RequestError.offsets("after a message that there is not")

    async def work() -> None:
        async with Choreographer(engine) as c:
            c.offer(c, broken)
            c.offer(c, lambda: Request((Prefill("rules"),), on_done=made.append))
            await c.run(speech(6))

    play(work)
    assert [result.made[0].words.text for result in made] == ["rules"]


def test_few_go_at_a_time_and_the_others_later(play: Play) -> None:
    engine, made = talker(6), list[RequestResult]()

    async def work() -> None:
        async with Choreographer(engine) as c:
            for number in range(2 * MOST + 1):
                call = Prefill(f"rules {number}")
                c.offer(c, lambda call=call: Request((call,), on_done=made.append))  # type: ignore[misc]
            await c.run(speech(6))

    play(work)
    assert [len(batch) for batch in engine.batches[:5]] == [1, 1 + MOST, 1 + MOST, 2, 1]
    assert len(made) == 2 * MOST + 1


def test_a_message_that_cannot_be_placed_breaks_its_own_game_alone(play: Play) -> None:
    async def odd(stage: Game) -> None:
        a = stage.cast(Talker, "alice")
        await a.tell("hi", to=(), view=View((), After("nobody.0")))
        await a.say()

    with pytest.raises(AgentchoError):
        game(play, odd)


@pytest.mark.parametrize("steps", range(4))
def test_an_owner_that_is_gone_leaves_nothing(play: Play, steps: int) -> None:
    """Before it is submitted, while it runs, and when it is done: results delivered by then belong to the owner."""
    engine, made = talker(6), list[int]()

    async def work() -> None:
        async with Choreographer(engine) as c:
            owner = object()
            request = Request((Prefill("rules"),), on_done=lambda result: made.extend(m.id for m in result.made))
            heard = list[str]()

            def on_token(text: str) -> None:
                heard.append(text)
                if len(heard) == steps + 1:
                    c.forget(owner)
                    c.release(made)

            c.offer(owner, lambda: request)
            result = await c.run(speech(6)._replace(on_token=on_token))
            c.release(m.id for m in result.made)
            await c.run(Request((Prefill("a step more"),)))
            assert engine.pages == 1

    play(work)
    nothing_left(engine)


def test_of_two_owners_one_that_is_gone_takes_its_own_along_and_nothing_else() -> None:
    ahead, owners = Prefetch(), (object(), object())
    for owner in owners:
        ahead.offer(owner, lambda: Request((Prefill("rules"),)))
    one, other = ahead.take()
    assert ahead.forget(owners[0]) == [one]
    assert ahead.forget(owners[0]) == []
    assert ahead.forget(owners[1]) == [other]


def draft(author: str | None, audience: Audience) -> Draft:
    metadata = Metadata(f"{author}.0", "prefill", "system", author, audience, ())
    return Draft(metadata, "rules", None, ReadSet(author, (), None, ()))


@pytest.mark.parametrize(
    ("reuse", "author", "audience", "recipe"),
    [
        (ReusePolicy(leakage="audit"), "bob", BOB, "author"),
        (ReusePolicy(leakage="audit"), None, EVERYONE, "author"),
        (ReusePolicy(leakage="deny"), "bob", EVERYONE, "author"),
        (ReusePolicy(leakage="enforce"), "bob", BOB, "author"),
        (ReusePolicy(leakage="enforce"), None, EVERYONE, "audience"),
        (ReusePolicy(leakage="enforce"), "bob", EVERYONE, None),
        (ReusePolicy("baseline"), "bob", BOB, None),
        (ReusePolicy(leakage="enforce", deterministic=True), "bob", BOB, None),
        (ReusePolicy(repair=FirstK(2)), None, EVERYONE, None),
    ],
)
def test_what_is_sure_to_be_asked_for(
    reuse: ReusePolicy, author: str | None, audience: Audience, recipe: str | None
) -> None:
    resolver = Resolver(reuse)
    said = resolver.drafts["x"] = draft(author, audience)
    resolver.drafts[said.metadata.id] = said
    assert [lack.recipe for lack in resolver.prefetch(said.metadata.id)] == ([] if recipe is None else [recipe])
    assert resolver.prefetch(said.metadata.id) == ()  # already requested


@pytest.mark.parametrize("leakage", ["audit", "enforce"])
def test_a_replay_has_encoded_what_the_next_speaker_brings_before_its_turn(leakage: Leakage) -> None:
    def line(id: str, kind: str, author: str, parents: list[str]) -> Mapping[str, object]:
        private = kind == "prefill"
        return {
            "id": id,
            "kind": kind,
            "role": "system" if private else "assistant",
            "author": author,
            "audience": [author] if private else "everyone",
            "parents": parents,
            "text": f"words of {id} in a row",
        } | ({} if private else {"header": ""})

    lines = [
        line("a", "prefill", "ann", []),
        line("b", "prefill", "ben", []),
        line("c", "decode", "ann", ["a"]),
        line("d", "decode", "ben", ["b", "c"]),
    ]
    trace = {"format": "agentcho-trace/1", "workflow": "w", "id": "w", "agents": ["ann", "ben"], "messages": lines}
    engine = FakeEngine()
    played = replay(trace, engine, leakage=leakage, logits=False)
    assert {entry.message.id for entry in played.entries} == {"a", "b", "c", "d"}
    rules = own_records(played.entries)["b"].id
    assert rules not in engine.batches[0]
    assert rules in engine.batches[1]
    baseline = replay(trace, FakeEngine(), mode="baseline", logits=False)
    assert [e.message.id for e in baseline.entries] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("leakage", ["audit", "enforce"])
def test_a_game_has_encoded_the_rules_of_who_speaks_next(play: Play, leakage: Leakage) -> None:
    engine = talker(8)

    async def script(stage: Game) -> None:
        alice, bob = stage.cast(Talker, "alice", system="be brief"), stage.cast(Talker, "bob", system="be long")
        for agent in (alice, bob):
            await agent.say()

    entries, _ = game(play, script, engine, leakage=leakage)
    assert [entry.message.id for entry in entries] == ["alice.0", "bob.0", "alice.1", "bob.1"]
    rules = own_records(entries)["bob.0"].id
    assert [rules in batch for batch in engine.batches[:3]] == [False, True, False]
    usage = {entry.message.id: entry.usage for entry in entries}
    assert usage["bob.1"].encoded == len(next(e for e in entries if e.message.id == "bob.1").message.tokens) * (
        1 if leakage == "audit" else 2
    )


@pytest.mark.parametrize("steps", range(4))
def test_a_game_that_breaks_off_leaves_nothing_of_what_was_made_ahead(play: Play, steps: int) -> None:
    engine = Interrupted()

    async def script(stage: Game) -> None:
        alice, _ = stage.cast(Talker, "alice", system="be brief"), stage.cast(Talker, "bob", system="be long")
        with anyio.CancelScope() as scope:
            engine.during[steps + 1] = scope.cancel
            await alice.say()
        raise KeyError("the script is over")

    with pytest.raises(KeyError):
        game(play, script, engine)
    assert nothing_left(engine)
