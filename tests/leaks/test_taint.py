"""What the game's code has looked at, and to whom it speaks afterwards: the facts behind AC006."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import Any, Literal

import anyio
import pytest
from pydantic import BaseModel, Field, create_model, field_validator

import agentcho
from agentcho import Agent, Game, Message, RunConfig
from agentcho.message import EVERYONE, Audience
from agentcho.provenance.code_reads import WORDS
from agentcho.provenance.taint import TaintTracker
from agentcho.records.transcript import TranscriptEntry
from agentcho.testing import play
from tests.said import message as said

BACKENDS = ["asyncio", "trio"]
Acts = dict[str, tuple[str, ...]]


class Talker(Agent):
    """Says whatever the fake generates."""

    role = "talker"


def acts(script: Callable[[Game, Talker, Talker], Awaitable[Any]], backend: str = "asyncio") -> Acts:
    """By message, those it may depend on that not everyone who hears it may read; empty entries are left out."""

    async def whole(game: Game) -> None:
        await script(game, game.cast(Talker, "alice"), game.cast(Talker, "bob"))

    entries = play(whole, backend=backend).entries
    return {entry.message.id: entry.act.tainted_by for entry in entries if entry.act.tainted_by}


class Bid(BaseModel):
    points: int = Field(ge=7, le=7)
    sure: bool


async def a_choice(game: Game, alice: Talker) -> str:
    return await alice.choose(["bob", "carol"], opening="I choose ", closing=".")


async def a_bid(game: Game, alice: Talker) -> str:
    return str((await alice.answer(Bid)).points)


@pytest.mark.parametrize("ask", [a_choice, a_bid])
def test_a_value_is_proved_to_be_used_where_the_code_says_it_or_looks_at_its_message(
    ask: Callable[[Game, Talker], Awaitable[str]],
) -> None:
    async def whole(game: Game) -> None:
        alice = game.cast(Talker, "alice")
        value = await ask(game, alice)
        await game.announce("The votes are in: true, I choose nothing.")
        await game.announce(f"It is {value}!")
        await alice.say(to="everyone", header=f"{value}: ")
        await alice.say(to="everyone")
        assert game.message("alice.0").text
        await game.announce("That is all.")

    entries = [entry for entry in play(whole).entries if entry.message.audience == EVERYONE]
    assert {entry.act.tainted_by for entry in entries} == {("alice.0",)}
    assert [len(entry.act.unproved) for entry in entries] == [1, 0, 0, 1, 0]
    assert [entry.act.contained for entry in entries] == [(), ("alice.0",), ("alice.0",), (), ()]


Use = Callable[[Game, Talker, str], Awaitable[Any]]


def reply(*why: str) -> type[BaseModel]:
    """A model with one field, which is one of these words."""
    kind: Any = Literal[why]
    return create_model("Reply", why=(kind, ...))


@agentcho.tool(audience="nobody")
def look() -> str:
    """A tool whose code returns the value."""
    return "bob or carol"


USES: dict[str, Use] = {
    "a choice": lambda game, carol, vote: carol.choose([f"Ann voted {vote}", "I pass"], to="everyone"),
    "an opening": lambda game, carol, vote: carol.choose(["a", "b"], to="everyone", opening=f"After {vote}: "),
    "a closing": lambda game, carol, vote: carol.choose(["a", "b"], to="everyone", closing=f", says {vote}."),
    "a schema": lambda game, carol, vote: carol.answer(reply(f"{vote} it is", "I pass"), to="everyone"),
    "a result": lambda game, carol, vote: carol.say(to=(), tools=[look], tool_choice="look", max_calls=1),
}
NO_USES: dict[str, Use] = {
    "the same choices": lambda game, carol, vote: carol.choose(["carol", "bob"], to="everyone", closing="!"),
    "other choices": lambda game, carol, vote: carol.choose(["bobsled", "I pass"], to="everyone"),
    "another schema": lambda game, carol, vote: carol.answer(reply("I pass"), to="everyone"),
    "generated words": lambda game, carol, vote: carol.say(to="everyone"),
}


@pytest.mark.parametrize("what", [*USES, *NO_USES])
@pytest.mark.parametrize("words", [None, "refuse"])
def test_a_value_is_proved_to_be_used_by_what_the_code_gives_an_agent_to_say(what: str, words: Any) -> None:
    async def whole(game: Game) -> None:
        alice, carol = game.cast(Talker, "alice"), game.cast(Talker, "carol")
        vote = await alice.choose(["bob", "carol"], to=(), closing=".")
        await (USES | NO_USES)[what](game, carol, vote)

    played = play(
        whole, lambda call, prompt: "bob or carol", config=RunConfig(model="fake", words=words, max_tokens=64)
    )
    acts = [entry.act for entry in played.entries if entry.act.tainted_by]
    assert {act.tainted_by for act in acts} == {("alice.0",)}
    assert {each for act in acts for each in act.contained} == ({"alice.0"} if what in USES else set())
    assert [act.unproved for act in acts] == [() if act.contained else ("alice.0",) for act in acts]


@pytest.mark.parametrize("words", [None, "refuse"])
def test_words_of_a_model_that_are_said_again_prove_nothing(words: Any) -> None:
    async def whole(game: Game) -> None:
        alice, carol = game.cast(Talker, "alice", system="Be brief."), game.cast(Talker, "carol")
        await carol.choose(["bob", "carol"], to=())
        note = await alice.say(to=())
        await alice.release(note, to="everyone")
        await alice.answer(reply("bob", "carol"), to="everyone")

    played = play(
        whole, lambda call, prompt: "bob or carol", config=RunConfig(model="fake", words=words, max_tokens=64)
    )
    said = {entry.message.id: entry for entry in played.entries}
    assert said["alice.2"].act.released == "alice.1"
    assert said["alice.2"].message.text == "bob or carol"
    assert {each.act.contained for each in said.values()} == {()}
    assert [id for id, each in said.items() if each.act.unproved] == [*said][2:]


@pytest.mark.parametrize("words", [None, "refuse"])
def test_a_schema_of_an_own_value_is_a_use_before_others(words: Any) -> None:
    async def whole(game: Game) -> None:
        alice, _ = game.cast(Talker, "alice", system="Be brief."), game.cast(Talker, "carol")
        vote = await alice.choose(["bob", "carol"], to=())
        await alice.answer(reply(f"I say {vote}", "I pass"), to="everyone")

    last = play(whole, config=RunConfig(model="fake", words=words, max_tokens=64)).entries[-1]
    assert (last.message.audience, last.act.contained) == (EVERYONE, ("alice.1",))


def test_a_value_that_wins_a_race_has_told_how_long_the_others_take() -> None:
    async def whole(game: Game) -> None:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await game.first(alice.choose(["yes", "no"]), bob.think(max_tokens=30))
        await game.announce("So be it.")

    last = play(whole).entries[-1].act
    assert "alice.0" in last.tainted_by
    assert last.unproved == ()


@pytest.mark.parametrize("way", ["announce", "streamed", "tell"])
def test_the_code_can_say_that_the_rules_tell_a_message_and_no_other(way: str) -> None:
    async def whole(game: Game) -> None:
        alice = game.cast(Talker, "alice")
        assert (await alice.think()).text
        if way == "announce":
            await game.announce("Over.", release=True)
        elif way == "tell":
            await alice.tell("Over.", to="everyone", release=True)
        else:
            async with game.streamed(release=True) as page:
                await page.write("Over.")
        await game.announce("And out.")

    told, after = (entry.act for entry in play(whole).entries[-2:])
    assert (told.tainted_by, told.by_rules, after.tainted_by, after.by_rules) == (
        ("alice.0",),
        True,
        ("alice.0",),
        False,
    )
    assert TranscriptEntry.from_json(play(whole).entries[-2].to_json()).act.by_rules


def message(**changes: Any) -> Message:
    """A finished message."""
    given: dict[str, Any] = {
        "id": "alice.0", "game": 0, "kind": "decode", "role": "assistant", "author": "alice", "audience": EVERYONE,
        "parents": (), "header": "", "text": "yes", "tokens": (1, 2, 3), "content": (1, 2),
    }  # fmt: skip
    return said(**(given | changes))


def test_a_lent_message_equals_the_plain_one_and_hides_nothing() -> None:
    plain = message(sampled=(1, 2), stopped="stop")
    tracked = TaintTracker().track(plain)
    assert (tracked == plain, plain == tracked, tracked != message(id="alice.1"), tracked != message(game=1)) == (
        True,
    ) * 4
    assert len({tracked, plain, TaintTracker().track(plain)}) == 1
    assert isinstance(tracked, Message)
    assert all(getattr(tracked, name) == getattr(plain, name) for name in (*WORDS, "id", "author", "metadata"))


@pytest.mark.parametrize("name", sorted(WORDS))
def test_looking_at_what_metadata_do_not_say_is_heard(name: str) -> None:
    taint = TaintTracker()
    getattr(taint.track(message()), name)
    assert taint.sources == {"alice.0"}


@pytest.mark.parametrize("name", ["id", "game", "kind", "role", "author", "audience", "parents", "header", "metadata"])
def test_looking_at_metadata_is_not_heard(name: str) -> None:
    taint = TaintTracker()
    getattr(taint.track(message()), name)
    assert taint.sources == set()


def test_to_compare_to_keep_and_to_print_a_message_is_not_to_look_at_it() -> None:
    taint = TaintTracker()
    tracked = taint.track(message(text="the secret", header="To Bob: "))
    assert tracked == message(text="another")
    assert tracked in {tracked: 1}
    assert "secret" not in f"{tracked!r}{tracked}{[tracked]}{message(text='the secret')!r}"
    assert taint.sources == set()


def test_a_release_is_its_authors_act_and_no_look_of_the_code() -> None:
    async def script(game: Game, alice: Talker, bob: Talker) -> None:
        plan = await alice.think()
        kept = {plan}
        await alice.release(plan, to="bob")
        await bob.say(to="everyone")
        assert plan in kept

    assert acts(script) == {}


def test_what_was_heard_counts_before_those_who_may_not_read_it() -> None:
    taint = TaintTracker()
    for id, readers in (("plan", {"alice"}), ("whisper", {"alice", "bob"})):
        _ = taint.track(message(id=id, audience=Audience(frozenset(readers)))).text
    audiences = {"plan": Audience(frozenset({"alice"})), "whisper": Audience(frozenset({"alice", "bob"}))}
    assert taint.tainted_by(EVERYONE, audiences) == ("plan", "whisper")
    assert taint.tainted_by(Audience(frozenset({"alice", "bob"})), audiences) == ("plan",)
    assert taint.tainted_by(Audience(frozenset({"alice"})), audiences) == ()


@pytest.mark.parametrize("backend", BACKENDS)
def test_who_looks_at_a_plan_and_then_speaks_before_all_has_acted_on_it(backend: str) -> None:
    async def script(game: Game, alice: Talker, bob: Talker) -> None:
        plan = await alice.think()
        await game.announce("before it is looked at")
        assert plan.text
        await game.announce("after")
        await game.announce("to whom may know", to="alice")
        await alice.say(to="everyone")

    assert acts(script, backend) == {"scenario.1": ("alice.0",), "alice.1": ("alice.0",)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_part_of_a_round_hears_apart_until_the_round_is_over(backend: str) -> None:
    async def script(game: Game, alice: Talker, bob: Talker) -> None:
        async def listens() -> None:
            assert (await alice.think()).text
            await alice.say(to="everyone")

        async def does_not() -> None:
            for _ in range(3):
                await bob.think()
            await bob.say(to="everyone")

        await game.together(listens(), does_not())
        await bob.say(to="everyone")

    assert acts(script, backend) == {"alice.1": ("alice.0",), "bob.4": ("alice.0",)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_rounds_in_rounds_are_joined_all_the_way_up(backend: str) -> None:
    async def script(game: Game, alice: Talker, bob: Talker) -> None:
        async def listens() -> None:
            assert (await alice.think()).text

        async def inner() -> None:
            await game.together(listens(), bob.think())
            await bob.say(to="everyone")

        await game.together(inner(), alice.think())
        await alice.say(to="everyone")

    told = acts(script, backend)
    assert told["bob.1"] == told["alice.2"] == ("alice.1",) or told["bob.1"] == told["alice.2"] == ("alice.0",)
    assert len(told) == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_round_that_fails_is_joined_too(backend: str) -> None:
    async def script(game: Game, alice: Talker, bob: Talker) -> None:
        async def fails() -> None:
            assert (await alice.think()).text
            raise KeyError

        with pytest.raises(KeyError):
            await game.together(fails())
        await bob.say(to="everyone")

    assert acts(script, backend) == {"bob.0": ("alice.0",)}


async def choose(game: Game, alice: Talker) -> None:
    await alice.choose(["yes", "no"])


async def stream(game: Game, alice: Talker) -> None:
    async with alice.stream(to=()) as pieces:
        async for _ in pieces:
            pass


async def look_it_up(game: Game, alice: Talker) -> None:
    assert game.message((await alice.think()).id).text


async def not_looked_at(game: Game, alice: Talker) -> None:
    assert game.message((await alice.think()).id).author == "alice"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("verb", "heard"),
    [(choose, True), (stream, True), (look_it_up, True), (not_looked_at, False)],
)
def test_every_way_to_the_words_is_heard(verb: Callable[..., Awaitable[None]], heard: bool, backend: str) -> None:
    async def script(game: Game, alice: Talker, bob: Talker) -> None:
        await verb(game, alice)
        await bob.say(to="everyone")

    assert acts(script, backend) == ({"bob.0": ("alice.0",)} if heard else {})


def test_that_a_stream_is_empty_is_heard() -> None:
    async def script(game: Game) -> None:
        alice = game.cast(Talker, "alice")
        async with alice.stream(to=()) as pieces:
            said = "".join([piece async for piece in pieces])
        await game.announce(f"alice has said {len(said)} letters")

    entries = play(script, lambda call, prompt: "").entries
    assert [(entry.message.id, entry.act.tainted_by) for entry in entries] == [
        ("alice.0", ()),
        ("scenario.0", ("alice.0",)),
    ]


def by_itself(look: Callable[[], Any]) -> Any:
    """Look in a thread that has no context of its own."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(look).result()


async def in_empty_context(look: Callable[[], Any]) -> Any:
    """Look on the thread of the game, in a task that has an empty context."""

    async def looks() -> Any:
        return look()

    return await asyncio.create_task(looks(), context=Context())


@pytest.mark.parametrize("at", ["words", "history", "task"])
def test_a_look_in_a_thread_without_context_may_be_that_of_any_move(at: str) -> None:
    async def script(game: Game, alice: Talker, bob: Talker) -> None:
        async def looks() -> None:
            plan = await alice.think()
            if at == "task":
                assert await in_empty_context(lambda: plan.text)
            else:
                assert by_itself(lambda: plan.text if at == "words" else len(game.said))
            await alice.tell("A plan.", to="everyone")

        async def waits() -> None:
            for _ in range(3):
                await bob.think(max_tokens=2)
            await bob.tell("Hello.", to="everyone")

        await alice.think()
        await game.together(looks(), waits())

    told = acts(script)
    assert {"alice.2", "bob.3"} <= set(told)
    assert ("alice.1" in told["alice.2"]) is (at != "history")


def test_a_look_of_the_scenario_in_a_thread_is_no_moves() -> None:
    async def script(game: Game, alice: Talker, bob: Talker) -> None:
        plan = await alice.think()

        async def waits() -> None:
            begun.set()
            await looked.wait()
            await bob.tell("Hello.", to="everyone")

        begun, looked = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(game.together, waits())
            await begun.wait()
            await asyncio.to_thread(lambda: plan.text)
            looked.set()

    assert "bob.0" not in acts(script)


def test_ids_that_another_move_has_requested_are_not_known_to_this_one() -> None:
    async def script(game: Game, alice: Talker, bob: Talker) -> None:
        async def thinks() -> None:
            for _ in range(3):
                await alice.think(max_tokens=2)

        async def guesses() -> None:
            for _ in range(6):
                await bob.say(to="everyone", max_tokens=9)
            game.message("alice.1")
            await bob.tell("So be it.", to="everyone")

        await game.together(thinks(), guesses())
        game.message("alice.1")
        await game.announce("It is over.")

    told = acts(script)
    assert told["bob.6"] == ("alice.1",)
    assert set(told) == {"bob.6", "scenario.0"}, "the round is over, and what was looked at in it is known"


async def told_in_empty_context(tell: Callable[[], Awaitable[Any]]) -> None:
    """Speak in a task that has an empty context."""

    async def speaks() -> None:
        await tell()

    await asyncio.create_task(speaks(), context=Context())


def test_an_act_in_a_task_without_context_may_be_that_of_any_move() -> None:
    async def script(game: Game, alice: Talker, bob: Talker) -> None:
        async def tells() -> None:
            text = (await alice.think()).text
            await told_in_empty_context(lambda: game.announce(text))

        await game.together(tells(), bob.think())

    assert acts(script)["scenario.0"] == ("alice.0",)


def test_an_act_in_a_task_without_context_leaves_the_order_unknown() -> None:
    async def script(game: Game) -> None:
        alice = game.cast(Talker, "alice")
        await alice.think()
        await told_in_empty_context(lambda: alice.tell("Done.", to="everyone"))

    played = play(script)
    assert [entry.act.after is None for entry in played.entries] == [False, True]
    assert played.over.raced


def test_a_stream_tells_what_those_who_wrote_it_had_looked_at() -> None:
    async def script(game: Game, alice: Talker, bob: Talker) -> None:
        page, ready, wrote = list[Any](), anyio.Event(), anyio.Event()

        async def publisher() -> None:
            async with game.streamed(to="everyone") as stream:
                page.append(stream)
                ready.set()
                await wrote.wait()

        async def writer() -> None:
            plan = await alice.think()
            await ready.wait()
            await page[0].write(plan.text)
            wrote.set()

        await game.together(publisher(), writer())

    assert acts(script) == {"scenario.0": ("alice.0",)}


@pytest.mark.parametrize("what", ["pieces", "message"])
def test_pieces_are_looked_at_by_the_move_that_reads_them(what: str) -> None:
    async def script(game: Game, alice: Talker, bob: Talker) -> None:
        opened, ready, over = list[Any](), anyio.Event(), anyio.Event()

        async def opener() -> None:
            async with alice.stream(to=()) as pieces:
                opened.append(pieces)
                ready.set()
                if what == "pieces":
                    await over.wait()
            ready.set()
            await over.wait()

        async def reader() -> None:
            await ready.wait()
            if what == "pieces":
                assert "".join([piece async for piece in opened[0]])
            else:
                while opened[0].message is None:
                    await bob.think(max_tokens=1)
            over.set()
            await bob.tell("Heard.", to="everyone")

        await game.together(opener(), reader())

    told = {id: behind for id, behind in acts(script).items() if id.startswith("bob")}
    assert set(told.values()) == {("alice.0",)}


def test_agents_side_by_side_know_only_what_they_have_looked_at_themselves() -> None:
    class Alone(Talker):
        async def run(self) -> None:
            for _ in range(2):
                if self.name == "alice":
                    assert (await self.think()).text
                await self.tell("Hello.", to="everyone")

    async def script(game: Game) -> None:
        await game.play_agents(game.cast(Alone, "alice"), game.cast(Alone, "bob"))
        await game.announce("It is over.")

    entries = play(script).entries
    told = {entry.message.id: entry.act.tainted_by for entry in entries if entry.act.tainted_by}
    assert told == {
        "alice.1": ("alice.0",),
        "alice.3": ("alice.0", "alice.2"),
        "scenario.0": ("alice.0", "alice.2"),
    }


NAMED_ALIKE = type("ScenarioError", (Exception,), {})
"""A class of the user with the name of one of ours."""


@pytest.mark.parametrize("raised", [agentcho.ScenarioError, agentcho.RequestError, NAMED_ALIKE])
def test_an_error_that_a_view_raises_counts_whatever_its_class(raised: type[Exception]) -> None:
    def full(readable: Any) -> agentcho.View:
        raise raised("the notebook is full")

    async def script(game: Game, alice: Talker, bob: Talker) -> None:
        await alice.think()
        with pytest.raises(raised):
            await alice.think(view=full)
        await game.announce("Alice has written a lot.")

    assert acts(script) == {"scenario.0": ("alice.0",)}


def test_any_error_of_a_validator_is_learnt_from() -> None:
    class Odd(BaseModel):
        points: int

        @field_validator("points")
        @classmethod
        def known(cls, points: int) -> int:
            raise KeyError(points)

    async def script(game: Game, alice: Talker, bob: Talker) -> None:
        with pytest.raises(KeyError):
            await alice.answer(Odd, to=())
        await game.announce("Alice is at a loss.")

    assert acts(script) == {"scenario.0": ("alice.0",)}
