"""Random games whose agents move between three engines with different tokenizers: what an author has read stays on its
engine, and every encoding is of the words that were said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcho import Game
from agentcho.errors import LeakageError
from agentcho.provenance.labels import EncodingRecord
from agentcho.testing import FakeEngine

from .stage import Seen, Talker, seen

NAMES = ("ann", "bob", "cleo")
ENGINES = ("default", "small", "tiny")
PLACE = 1 << 40
WAYS: dict[str, dict[str, Any]] = {
    "enforce": {"leakage": "enforce"},
    "never shadowed": {"leakage": "enforce", "shadow": "never"},
    "deterministic": {"leakage": "enforce", "deterministic": True},
    "in place": {"leakage": "enforce", "reuse": "in-place"},
    "repaired": {"leakage": "enforce", "repair": "first-k:2"},
    "audit": {"leakage": "audit"},
    "audit in place": {"leakage": "audit", "reuse": "in-place"},
    "audit repaired": {"leakage": "audit", "repair": "first-k:2"},
    "deny": {"leakage": "deny"},
    "baseline": {"mode": "baseline"},
}


class Act(NamedTuple):
    """The next act of an agent, or of the scenario (None): on which engine, how, and for whom."""

    who: str | None
    engine: str
    verb: str
    to: tuple[str, ...]
    words: str


acts = st.lists(
    st.builds(
        Act,
        st.sampled_from((*NAMES, None)),
        st.sampled_from(ENGINES),
        st.sampled_from(("say", "think", "tell", "ask", "release")),
        st.lists(st.sampled_from(NAMES), unique=True, max_size=3).map(tuple),
        st.sampled_from(("a", "incomprehensible words", "to be or not")),
    ),
    min_size=3,
    max_size=9,
)


def played(plan: Sequence[Act], way: str) -> Seen:
    """Play a plan: an empty audience means everyone, and "think" is private."""
    where = dict.fromkeys(NAMES, "default")

    async def script(game: Game) -> None:
        cast: dict[str, Any] = {}
        for name in NAMES:
            model = lambda turn, name=name: where[name]  # noqa: E731
            cast[name] = game.cast(Talker, name, system=f"You are {name} alone.", model=model)
        last: dict[str, Any] = {}
        for who, engine, verb, to, words in plan:
            audience = to or "everyone"
            if who is None:
                await game.announce(words, to=audience)
                continue
            agent, where[who] = cast[who], engine
            try:
                if verb == "tell":
                    await agent.tell(words, to=audience)
                elif verb == "release" and who in last:
                    await agent.release(last[who], to=audience)
                elif verb == "think":
                    last[who] = await agent.think(max_tokens=3)
                else:
                    last[who] = await agent.say(to=audience, prompt=words if verb == "ask" else None, max_tokens=3)
            except LeakageError:  # deny refuses readings that carry hidden words
                assert way == "deny"

    return seen(script, beside(), **WAYS[way])


def beside() -> dict[str, FakeEngine]:
    """The two other engines, which tokenize differently."""
    return {"small": FakeEngine(letters=3), "tiny": FakeEngine(letters=2, bos=False)}


def cones(found: Seen) -> dict[int, set[str]]:
    """The messages behind each encoding, computed from the receipts alone."""
    known: dict[int, set[str]] = {}
    for record in sorted(found.made, key=lambda each: each.id):
        over = [read.id for read in record.receipt.context]
        over += [] if record.receipt.base is None else [record.receipt.base]
        known[record.id] = {record.message}.union(*(known[id] for id in over))
    return known


def reader(record: EncodingRecord, authors: dict[str, str | None]) -> str | None:
    """The agent that attends to an encoding's context, or None if the encoding is for all its readers."""
    return authors[record.message] if record.recipe == "author" else record.caller


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(acts)
def test_nothing_gets_to_an_engine_that_its_readers_may_not_know(way: str, plan: list[Act]) -> None:
    check_readings(way, plan)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(acts)
def test_nothing_does_in_many_games(way: str, plan: list[Act]) -> None:
    check_readings(way, plan)


def check_readings(way: str, plan: list[Act]) -> None:
    """Check that no encoding has behind it what its reader may not read, where that is promised, and that an author's
    own encoding is read only on the engine where it was made."""
    found = played(plan, way)
    messages = {entry.message.id: entry.message for entry in found.entries}
    said_on = {entry.message.id: entry.engine for entry in found.entries}
    authors = {id: message.author for id, message in messages.items()}
    behind, records = cones(found), {record.id: record for record in found.made}
    assert len(records) == len(found.made)
    for record in found.made:
        who = reader(record, authors)
        assert (record.engine is None) == (record.id < PLACE)
        assert behind[record.id] == record.cone
        for read in record.receipt.context:
            over = records[read.id]
            assert over.engine == record.engine
            assert over.id // PLACE == record.id // PLACE
            if who is None or authors[over.message] in (None, who):
                continue
            if over.recipe == "author":
                assert way.startswith(("audit", "deny"))
                assert said_on[over.message] == record.engine
            if over.recipe == "audience" or not way.startswith("audit"):
                assert all(messages[id].audience.includes(who) for id in behind[over.id])


@pytest.mark.parametrize("way", ["enforce", "audit", "baseline"])
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(acts)
def test_every_encoding_is_as_long_as_its_words_are_on_its_engine(way: str, plan: list[Act]) -> None:
    """By that engine's framing; and a reading through a different tokenizer than the author's is recorded as such."""
    found = played(plan, way)
    engines: dict[str | None, FakeEngine] = {None: FakeEngine()}
    engines.update(beside())
    entries = {entry.message.id: entry for entry in found.entries}
    records = {record.id: record for record in found.made}
    for record in found.made:
        for read in record.receipt.context:
            message = entries[records[read.id].message].message
            words = engines[record.engine].frame(message.role, message.name, message.header + message.text)
            assert read.length == len(words.tokens)
        assert record.respelled == (record.engine != entries[record.message].engine)
