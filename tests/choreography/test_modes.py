"""What each mode reads and encodes: authors' encodings or the caller's own prompt, counted token by token."""

from dataclasses import dataclass, field

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcho import Game, View
from agentcho.config import Mode
from agentcho.records.transcript import TranscriptEntry, own_records
from agentcho.testing import FakeEngine

from .stage import MODES, Play, Talker, game


def made(entries: list[TranscriptEntry]) -> dict[str, list[str]]:
    """The messages that were encoded for each decode."""
    return {e.message.id: [r.message for r in e.made] for e in entries if e.message.kind == "decode"}


def test_the_author_encoding_carries_the_thought_and_the_cone_says_so(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await a.think()
        await a.say()
        await b.say()

    audit, _ = game(play, script)
    baseline, _ = game(play, script, mode="baseline")
    assert audit[-1].made[-1].cone == {"alice.0", "alice.1", "bob.0"}
    assert audit[-1].made[-1].receipt.context[0].id == audit[1].encoding
    assert baseline[-1].made[-1].cone == {"alice.1", "bob.0"}
    assert (audit[1].made[-1].caller, audit[1].made[-1].recipe) == ("alice", "author")
    again, own = baseline[-1].made
    assert (again.message, again.caller, again.recipe) == ("alice.1", "bob", "baseline")
    assert (own.message, own.caller) == ("bob.0", "bob")


def test_choreographed_mode_encodes_every_message_once(play: Play) -> None:
    engine = FakeEngine()

    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice", system="Be Alice."), game.cast(Talker, "bob", system="Be Bob.")
        await game.announce("the rules")
        for _ in range(2):
            await game.together(a.say(prompt="Alice?"), b.say(prompt="Bob?"))

    entries, _ = game(play, script, engine)
    lengths = {e.message.id: len(e.message.tokens) for e in entries}
    assert sum(e.usage.encoded for e in entries) == sum(lengths.values())
    assert made(entries)["alice.4"] == ["alice.3", "alice.4"]
    for e in entries:
        assert e.usage.reused + sum(lengths[r.message] for r in e.made) >= e.usage.encoded


def test_baseline_encodes_what_a_prompt_lacks_and_reuses_its_own_words(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await a.think()
        await a.say()
        await b.say()
        await a.say()

    entries, _ = game(play, script, mode="baseline")
    length = {e.message.id: len(e.message.tokens) for e in entries}
    assert made(entries) == {
        "alice.0": ["alice.0"],
        "alice.1": ["alice.1"],
        "bob.0": ["alice.1", "bob.0"],
        "alice.2": ["bob.0", "alice.2"],
    }
    usage = entries[-1].usage
    assert usage.encoded == length["bob.0"] + length["alice.2"]
    assert usage.reused == length["alice.0"] + length["alice.1"]


def test_baseline_encodes_the_whole_of_a_prompt_in_one_request(play: Play) -> None:
    engine = FakeEngine(lambda call, prompt: "yes")

    async def script(game: Game) -> None:
        for text in ("one", "two", "three"):
            await game.announce(text)
        await game.cast(Talker, "alice").say(prompt="well?")

    entries, _ = game(play, script, engine, mode="baseline")
    assert len(engine.batches[0]) == 5
    receipt = entries[-1].made[-1].receipt
    ends = [entry.offset + entry.length for entry in receipt.context]
    assert [entry.offset for entry in receipt.context] == [1, *ends[:-1]]


def test_baseline_shares_equal_beginnings_among_callers(play: Play) -> None:
    async def script(game: Game) -> None:
        await game.announce("the question")
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await a.think()
        await b.think()
        await b.think(view=View.of(["bob.0", "scenario.0"]))

    entries, _ = game(play, script, mode="baseline")
    assert made(entries) == {
        "alice.0": ["scenario.0", "alice.0"],
        "bob.0": ["bob.0"],
        "bob.1": ["bob.0", "scenario.0", "bob.1"],
    }


@pytest.mark.parametrize("mode", MODES)
def test_what_two_need_at_the_same_time_is_counted_once(play: Play, mode: Mode) -> None:
    engine = FakeEngine()
    fed: list[int] = []

    async def script(game: Game) -> None:
        await game.announce("what all of them read at once")
        agents = [game.cast(Talker, name, system=f"You are {name}.") for name in ("alice", "bob", "carol")]
        await game.together(*(agent.say() for agent in agents))
        await game.together(*(agent.say(view=agent.view(game.said[:1])) for agent in agents))
        fed.append(game._choreographer.encoded)

    entries, _ = game(play, script, engine, mode=mode)
    assert sum(entry.usage.encoded for entry in entries) == fed[0]


@pytest.mark.parametrize("mode", MODES)
def test_of_what_was_read_all_was_fed_for_the_line_or_is_reused(play: Play, mode: Mode) -> None:
    """Tokens that a concurrent request fed count as reused: they were fed once."""

    async def script(game: Game) -> None:
        await game.announce("what both of them read at once")
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await game.together(a.say(), b.say())

    entries, _ = game(play, script, mode=mode)
    for entry in (each for each in entries if each.message.kind == "decode"):
        own = own_records(entries)[entry.message.id].receipt
        read = sum(piece.length for piece in own.context)
        assert entry.usage.encoded + entry.usage.reused == read + len(entry.message.tokens)


# -- cones -------------------------------------------------------------------------------------------------

NAMES = ("alice", "bob", "carol")
VERBS = ("think", "say", "tell", "whisper", "announce", "backwards", "round")


@dataclass
class Talk:
    """A script of random acts of three agents."""

    acts: list[tuple[str, str]] = field(default_factory=list)

    async def __call__(self, game: Game) -> None:
        cast = {name: game.cast(Talker, name, system=f"I am {name}") for name in NAMES}
        for name, verb in self.acts:
            agent, other = cast[name], NAMES[NAMES.index(name) - 1]
            match verb:
                case "think":
                    await agent.think("well?")
                case "say":
                    await agent.say()
                case "tell":
                    await agent.tell("so it is")
                case "whisper":
                    await agent.say(to=other)
                case "announce":
                    await game.announce("news", to=name)
                case "backwards":
                    readable = [m for m in game.said if m.audience.includes(name)]
                    await agent.say(view=View.of(readable[::-2]))
                case "round":
                    await game.together(agent.say(), cast[other].think())


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(
    acts=st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VERBS)), min_size=1, max_size=9),
    mode=st.sampled_from(MODES),
)
def test_cones_are_what_receipts_reach_in_any_game(acts: list[tuple[str, str]], mode: Mode) -> None:
    """The oracle follows the receipts of the transcript, encoding by encoding."""
    entries, _ = game(lambda work: anyio.run(work), Talk(acts), mode=mode)
    records = {record.id: record for entry in entries for record in entry.made}
    audiences = {e.message.id: e.message.audience for e in entries}
    authors = {e.message.id: e.message.author for e in entries}
    for record in records.values():
        reached, open_ = {record.message}, [record]
        while open_:
            for parent in open_.pop().receipt.context:
                reached.add(records[parent.id].message)
                open_.append(records[parent.id])
        assert record.cone == reached
        if mode == "baseline" and record.caller in NAMES:
            assert all(audiences[message].includes(record.caller) for message in record.cone)
    for entry in entries:
        own = own_records(entries).get(entry.message.id)
        if own is None:
            assert entry.message.kind == "prefill", "nobody has read it"
            continue
        read = [records[parent.id] for parent in own.receipt.context]
        if mode == "choreographed" or entry.message.kind == "decode":
            assert [record.message for record in read] == list(entry.message.parents)
        if mode == "choreographed":
            assert all(record.caller == authors[record.message] for record in read)
