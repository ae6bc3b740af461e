"""Games on the fake engine: who reads what, rounds, limits, ids and coins, and what the books say."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, field_validator

from agentcho import (
    After,
    Agent,
    Choreographer,
    Decode,
    Game,
    Limits,
    Message,
    Metadata,
    Read,
    RunConfig,
    Scenario,
    View,
)
from agentcho.config import Leakage, Mode
from agentcho.errors import AgentchoError, AnswerInvalid, AudienceError, BadSampling, LeakageError
from agentcho.events import Ended, Event, Over
from agentcho.message import audience
from agentcho.testing import FakeEngine
from agentcho.transcript import Entry

from .conftest import Play

Script = Callable[[Game], Awaitable[Any]]


MODES: tuple[Mode, ...] = ("choreographed", "baseline")
REFUSING: tuple[Leakage, ...] = ("enforce", "deny")


class Talker(Agent):
    """Says what the engine babbles, to everyone."""

    role = "talker"
    audience = "everyone"


class Scripted(Scenario):
    """Plays a function."""

    name = "scripted"

    class Outcome(Scenario.Outcome):
        """Whatever it returned."""

        value: Any = None

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    async def play(self, game: Game) -> Scenario.Outcome:
        return self.Outcome(value=await self.script(game))


def game(
    play: Play, script: Script, engine: FakeEngine | None = None, mode: Mode = "choreographed",
    leakage: Leakage = "audit", limits: Limits | None = None, games: int = 1, seed: int = 0,
) -> tuple[list[Entry], list[Over]]:  # fmt: skip
    """Play a script; its transcript and outcomes. Nothing may be left in the engine."""
    engine = engine or FakeEngine()
    events: list[Event] = []
    config = RunConfig(mode=mode, max_tokens=12, limits=limits or Limits())

    async def work() -> None:
        async with Choreographer(engine, mode, leakage) as c:
            all_games = [Game(c, i, seed, config, sink=events.append) for i in range(games)]
            await c.turns.together(*(each.play(Scripted(script)) for each in all_games))

    try:
        play(work)
    finally:
        assert engine.idle
        assert engine.pages == 0
    return [e.entry for e in events if isinstance(e, Ended)], [e for e in events if isinstance(e, Over)]


def spoken(entries: list[Entry]) -> list[Message]:
    return [entry.message for entry in entries if entry.message.kind == "decode"]


def test_a_thought_is_its_authors_alone_and_what_is_said_is_read_by_its_audience(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b, c = (game.cast(Talker, name) for name in ("alice", "bob", "carol"))
        await a.think()
        await a.say(to="bob")
        await b.say()
        await c.say()

    entries, _ = game(play, script)
    thought, whisper, _, last = spoken(entries)
    assert thought.audience == audience("alice")
    assert whisper.audience == audience(["alice", "bob"])
    assert [m.parents for m in spoken(entries)] == [(), ("alice.0",), ("alice.1",), ("bob.0",)]
    assert last.audience.members is None


def test_the_author_encoding_carries_the_thought_and_the_cone_says_so(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await a.think()
        await a.say()
        await b.say()

    audit, _ = game(play, script)
    baseline, _ = game(play, script, mode="baseline")
    assert audit[-1].made[-1].cone == {"alice.0", "alice.1", "bob.0"}
    assert baseline[-1].made[-1].cone == {"alice.1", "bob.0"}


@pytest.mark.parametrize("names", ["ali", "Alice", ["bob", "bobb"], "scenario"])
def test_an_audience_is_of_exact_names(play: Play, names: str | list[str]) -> None:
    async def script(game: Game) -> None:
        a, _ = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        with pytest.raises(AudienceError):
            await a.say(to=names)

    game(play, script)


@pytest.mark.parametrize("name", ["everyone", "scenario", "Alice", "a b", "", "alice"])
def test_a_name_that_cannot_be_or_is_taken_is_refused(play: Play, name: str) -> None:
    async def script(game: Game) -> None:
        game.cast(Talker, "alice")
        with pytest.raises(AudienceError):
            game.cast(Talker, name or " ")

    game(play, script)


def test_moves_of_a_round_are_unseen_until_it_closes(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")

        async def twice(agent: Agent) -> None:
            await agent.say()
            await agent.say()

        await game.together(twice(b), a.say())
        await a.say()

    entries, _ = game(play, script, FakeEngine(lambda call, prompt: "w " * (1 + call.sampling.seed % 7)))
    parents = {m.id: m.parents for m in spoken(entries)}
    assert parents == {
        "bob.0": (), "alice.0": (), "bob.1": ("bob.0",), "alice.1": ("bob.0", "bob.1", "alice.0"),
    }  # fmt: skip


def test_a_round_within_a_round_comes_out_with_the_outer_one(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b, c = (game.cast(Talker, name) for name in ("alice", "bob", "carol"))

        async def pair() -> None:
            await game.together(b.say(), a.say())
            await a.say()

        await game.together(pair(), c.say())
        await c.say()

    entries, _ = game(play, script)
    parents = {m.id: m.parents for m in spoken(entries)}
    assert parents["alice.1"] == ("bob.0", "alice.0")
    assert parents["carol.0"] == ()
    assert parents["carol.1"] == ("bob.0", "alice.0", "alice.1", "carol.0")


def test_a_move_that_fails_fails_the_round_and_what_was_said_stays(play: Play) -> None:
    async def script(game: Game) -> int:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")

        async def breaks() -> None:
            await a.say()
            raise LookupError("mine")

        with pytest.raises(LookupError):
            await game.together(breaks(), b.say(max_tokens=12))
        return len(game.said)

    _, [over] = game(play, script, FakeEngine(lambda call, prompt: "w " * (1 if call.name == "alice" else 12)))
    assert over.outcome == {"value": 1}


LIMITS = {
    "agent_messages": Limits(agent_messages=2), "game_messages": Limits(game_messages=2),
    "agent_tokens": Limits(agent_tokens=7), "game_tokens": Limits(game_tokens=7),
    "game_seconds": Limits(game_seconds=1e-9), "agent_seconds": Limits(agent_seconds=1e-9),
}  # fmt: skip


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_ends_a_game_as_an_outcome(play: Play, limit: str) -> None:
    async def script(game: Game) -> None:
        a = game.cast(Talker, "alice")
        for _ in range(100):
            await a.say()

    engine = FakeEngine(lambda call, prompt: "one two three four")
    entries, [over] = game(play, script, engine, limits=LIMITS[limit])
    assert over.outcome is None
    assert over.ended is not None
    assert over.ended.startswith("limit:")
    assert limit.split("_")[1] in over.ended
    assert all(m.text for m in spoken(entries))
    assert len(spoken(entries)) == (0 if "seconds" in limit else 2)
    if "tokens" in limit:
        sampled = [m.sampled or (0, 0) for m in spoken(entries)]
        assert sum(stop - start for start, stop in sampled) == 7


def test_a_limit_of_one_game_leaves_the_others_alone(play: Play) -> None:
    async def script(game: Game) -> str:
        a = game.cast(Talker, "alice")
        for _ in range(2 if game.index else 9):
            await a.say()
        return "done"

    _, overs = game(play, script, limits=Limits(agent_messages=3), games=3)
    assert sorted((over.game, over.ended is None) for over in overs) == [(0, False), (1, True), (2, True)]


class Nosy(Talker):
    """Reads everything that was ever said."""

    def view(self, readable: Sequence[Metadata]) -> View:
        return View.of(["alice.0"])


def test_a_direct_leak_is_recorded_under_audit_and_refused_else(play: Play) -> None:
    async def script(game: Game) -> None:
        await game.cast(Talker, "alice").think()
        await game.cast(Nosy, "bob").say()

    for mode in MODES:
        entries, _ = game(play, script, mode=mode)
        assert entries[-1].direct == ("alice.0",)
    for leakage in REFUSING:
        with pytest.raises((LeakageError, ExceptionGroup)):
            game(play, script, mode="baseline", leakage=leakage)


def test_a_view_sees_metadata_and_places_messages(play: Play) -> None:
    class Placing(Talker):
        def view(self, readable: Sequence[Metadata]) -> View:
            assert all(not hasattr(m, "text") and not hasattr(m, "tokens") for m in readable)
            first, second, third = readable
            reads = (Read(third.id, 40), Read(first.id), Read(second.id, After(third.id, 5)))
            return View(reads, After(first.id, -2))

    async def script(game: Game) -> None:
        for text in ("one", "two words", "and three words"):
            await game.announce(text)
        await game.cast(Placing, "alice").say()

    entries, _ = game(play, script)
    lengths = {e.message.id: len(e.message.tokens) for e in entries}
    receipt = entries[-1].made[-1].receipt
    third = 40 + lengths["scenario.2"]
    assert [entry.offset for entry in receipt.context] == [40, third, third + 5]
    assert receipt.start == third + lengths["scenario.0"] - 2


def test_baseline_encodes_what_a_prompt_lacks_and_reuses_its_own_words(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await a.think()
        await a.say()
        await b.say()
        await a.say()

    entries, _ = game(play, script, mode="baseline")
    length = {e.message.id: len(e.message.tokens) for e in entries}
    made = {e.message.id: [record.message for record in e.made] for e in entries}
    assert made == {
        "alice.0": ["alice.0"], "alice.1": ["alice.1"], "bob.0": ["alice.1", "bob.0"], "alice.2": ["bob.0", "alice.2"],
    }  # fmt: skip
    usage = entries[-1].usage
    assert usage.encoded == length["bob.0"] + length["alice.2"]
    assert usage.reused == length["alice.0"] + length["alice.1"]


def test_baseline_shares_equal_beginnings_among_callers(play: Play) -> None:
    async def script(game: Game) -> None:
        await game.announce("the question")
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await a.think()
        await b.think()

    entries, _ = game(play, script, mode="baseline")
    assert [len(e.made) for e in entries] == [1, 1, 1]


def test_what_an_agent_says_does_not_depend_on_how_much_others_did(play: Play) -> None:
    def first_of_alice(others: int) -> Message:
        async def script(game: Game) -> None:
            b, a = game.cast(Talker, "bob"), game.cast(Talker, "alice")
            for _ in range(others):
                await b.think()
            await a.think()

        entries, _ = game(play, script)
        return next(m for m in spoken(entries) if m.author == "alice")

    assert first_of_alice(0) == first_of_alice(3)


def test_turns_and_authors_have_coins_of_their_own(play: Play) -> None:
    seeds: list[int] = []

    def reply(call: Decode, prompt: str) -> str:
        seeds.append(call.sampling.seed)
        return "x"

    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await game.together(a.think(), b.think())
        await a.think()

    game(play, script, FakeEngine(reply), games=2)
    assert len(set(seeds)) == len(seeds) == 6


def test_the_same_seed_gives_the_same_transcript_and_batches(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice", system="one"), game.cast(Talker, "bob", system="two")
        await game.together(a.think("plan"), b.think("plan"))
        await a.say()
        await game.together(b.say(), a.think())

    def run(seed: int) -> tuple[list[Message], list[tuple[int, ...]]]:
        engine = FakeEngine()
        entries, _ = game(play, script, engine, games=3, seed=seed)
        return [e.message for e in entries], engine.batches

    assert run(1) == run(1)
    assert run(1) != run(2)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_cones_are_what_receipts_reach_in_any_game(data: st.DataObject) -> None:
    """Random talks of three agents; the oracle walks the receipts of the transcript."""
    names = ("alice", "bob", "carol")
    act = st.tuples(st.sampled_from(names), st.sampled_from(["think", "say", "tell", "whisper"]))
    acts = data.draw(st.lists(act, min_size=1, max_size=9))
    mode: Mode = data.draw(st.sampled_from(["choreographed", "baseline"]))

    async def script(game: Game) -> None:
        cast = {name: game.cast(Talker, name, system=f"I am {name}") for name in names}
        for name, verb in acts:
            agent = cast[name]
            match verb:
                case "think":
                    await agent.think("well?")
                case "say":
                    await agent.say()
                case "tell":
                    await agent.tell("so it is")
                case _:
                    await agent.say(to=names[names.index(name) - 1])

    entries, _ = game(lambda work: anyio.run(work), script, mode=mode)
    records = {record.id: record for entry in entries for record in entry.made}
    for record in records.values():
        reached, open_ = {record.message}, [record]
        while open_:
            for parent in open_.pop().receipt.context:
                reached.add(records[parent.id].message)
                open_.append(records[parent.id])
        assert record.cone == reached
        if mode == "baseline" and record.caller in names:
            audiences = {e.message.id: e.message.audience for e in entries}
            assert all(audiences[message].includes(record.caller) for message in record.cone)


# -- verbs -------------------------------------------------------------------------------------------------


class Verdict(BaseModel):
    """What is asked for."""

    guilty: bool
    years: int


class Never(BaseModel):
    """Fits its schema and still is refused."""

    years: int

    @field_validator("years")
    @classmethod
    def _never(cls, value: int) -> int:
        raise ValueError("never")


def test_every_verb_does_what_it_says(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        assert (await a.think("why?")).audience == audience("alice")
        assert (await a.say(header="To Bob: ")).header == "To Bob: "
        assert await a.ask("which?", ["left", "right"]) in {"left", "right"}
        chosen = await a.choose(["yes", "no"], header='{"go": ', opening='"', closing='"}')
        assert chosen in {"yes", "no"}
        assert isinstance(await b.answer(Verdict, "how?"), Verdict)
        with pytest.raises(AnswerInvalid, match="years"):
            await b.answer(Never)
        told = await b.tell("I was there")
        async with b.stream() as pieces:
            text = "".join([piece async for piece in pieces])
        assert pieces.message is not None
        assert pieces.message.text == text
        assert told in pieces.message.parents
        assert game.message(told).text == "I was there"

    entries, [over] = game(play, script)
    assert over.ended is None
    prompts = [e.message for e in entries if e.message.role == "user"]
    assert [p.author for p in prompts] == ["alice", "alice", "bob"]
    assert all(p.audience == audience(p.author or "") for p in prompts)


def test_a_stream_raises_what_its_message_does(play: Play) -> None:
    async def script(game: Game) -> None:
        a = game.cast(Talker, "alice")
        with pytest.raises(BadSampling):
            async with a.stream(max_tokens=0) as pieces:
                assert [piece async for piece in pieces] == []

    game(play, script)


def test_a_message_nobody_reads_is_in_the_transcript_all_the_same(play: Play) -> None:
    async def script(game: Game) -> None:
        await game.announce("into the void")

    entries, _ = game(play, script)
    assert [e.message.text for e in entries] == ["into the void"]


def test_an_agent_without_a_game_says_so() -> None:
    with pytest.raises(AgentchoError, match="no game"):
        anyio.run(Talker("alice").think)
