"""Games whose callers repair what they reuse: who gets which repairs, their cones, and their distance from encoding
anew."""

from __future__ import annotations

from typing import Any

import pytest

from agentcho import Agent, Engine, Game, Read, RunConfig, Scenario, View
from agentcho.audit.verdict import GameVerdict
from agentcho.config import ReusePolicy
from agentcho.events import Ended, Event
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.lab.compare.fidelity import Arm, apart, rows
from agentcho.records.trace import exported
from agentcho.records.transcript import TranscriptEntry
from agentcho.reuse.ape import Ape
from agentcho.reuse.cacheblend import CacheBlend
from agentcho.reuse.epic import Epic
from agentcho.reuse.first_k import FirstK
from agentcho.reuse.full import Full
from agentcho.reuse.registry import parsed_repair
from agentcho.reuse.top_k import TopK
from agentcho.testing import FakeEngine
from tests.engines import Engines

REPAIRS = ("first-k:2", "top-k:0.3", "full")


def played(scenario: Scenario, engine: Any = None, **how: Any) -> list[TranscriptEntry]:
    entries: list[TranscriptEntry] = []

    def hear(event: Event) -> None:
        if isinstance(event, Ended):
            entries.append(event.entry)

    config = RunConfig.model_validate({"max_tokens": 12} | how)
    assert play(RunRequest(scenario, config, engine=engine or FakeEngine(), sink=hear)).error is None
    return entries


class Talker(Agent):
    """Speaks to everyone."""

    audience = "everyone"


class Talk(Scenario):
    """Alice thinks and speaks, Bob speaks, and both speak again."""

    name = "talk"

    async def play(self, game: Game) -> Any:
        alice, bob = game.cast(Talker, "alice", system="be sly"), game.cast(Talker, "bob", system="be kind")
        await alice.think("plan")
        await alice.say()
        await bob.say()
        await alice.say()
        await bob.say()
        return self.Outcome()


@pytest.mark.parametrize("leakage", ["audit", "enforce"])
@pytest.mark.parametrize("repair", REPAIRS)
def test_each_caller_has_its_own_and_uses_it_again(leakage: str, repair: str) -> None:
    entries = played(Talk(), repair=repair, leakage=leakage)
    made = [record for entry in entries for record in entry.made if record.recipe == "repaired"]
    assert [(record.caller, record.message) for record in made] == [
        ("bob", "alice.3"),
        ("alice", "bob.1"),
        ("bob", "alice.4"),
    ]
    last = entries[-1].own
    assert last is not None
    assert {entry.id for entry in last.receipt.context} >= {record.id for record in made if record.caller == "bob"}
    for record in made:
        assert (record.receipt.base is None) == (repair == "full")


@pytest.mark.parametrize("repair", REPAIRS)
def test_what_is_kept_of_an_authors_encoding_still_leaks(repair: str) -> None:
    entries = played(Talk(), repair=repair, leakage="audit")
    verdicts = {reading.edge.verdict for reading in GameVerdict(0, entries).readings() if reading.edge.reader == "bob"}
    assert ("transitive" in verdicts) == (repair != "full")
    repaired = next(
        record for e in entries for record in e.made if record.message == "alice.3" and record.caller == "bob"
    )
    assert {"bob.0", "alice.3"} <= repaired.cone
    assert ({"alice.0", "alice.2"} <= repaired.cone) == (repair != "full")


@pytest.mark.parametrize("repair", REPAIRS)
def test_enforced_repair_starts_from_what_leaks_nothing(repair: str) -> None:
    entries = played(Talk(), repair=repair, leakage="enforce")
    assert {reading.edge.verdict for reading in GameVerdict(0, entries).readings()} == {"clean"}
    recipes = {record.id: record.recipe for entry in entries for record in entry.made}
    bases = [record.receipt.base for entry in entries for record in entry.made if record.receipt.base is not None]
    assert all(recipes[base] == "audience" for base in bases)
    assert bool(bases) == (repair != "full")


def test_what_was_read_by_repair_alone_is_exported_where_its_author_asked_for_it() -> None:
    """Only readers that encode all of it anew read a question; the positions in their prompts are not its own."""
    entries = played(library.scenario("multi-qa")(), leakage="enforce", repair="full")
    trace = exported("multi-qa", "x", {}, (), entries, None)
    questions = [message for message in trace.messages if message.id.startswith("scenario.")]
    assert questions
    assert all(message.offsets is None and message.parents == () for message in questions)


class Elsewhere(Scenario):
    """Bob reads what Alice said over nothing: at its default position, then elsewhere, then before another message."""

    name = "elsewhere"

    async def play(self, game: Game) -> Any:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        one, other = [await alice.say(view=View(())) for _ in range(2)]
        for at in (None, 40, 50, 40):
            await bob.say(view=View((Read(one.id, at),)))
        await bob.say(view=View((Read(one.id, 60), Read(other.id, 90))))
        return self.Outcome()


@pytest.mark.parametrize("repair", REPAIRS)
def test_a_message_that_stands_elsewhere_is_another_one_to_repair(repair: str) -> None:
    entries = played(Elsewhere(), repair=repair)
    made = [record.receipt.start for entry in entries for record in entry.made if record.recipe == "repaired"]
    assert made == [40, 50, 60, 90]


def test_a_record_keeps_its_base() -> None:
    for entry in played(Talk(), repair="first-k:2"):
        assert TranscriptEntry.from_json(entry.to_json()) == entry


@pytest.fixture(scope="module")
def engine(engines: Engines) -> Engine:
    return engines.understudy()


def test_in_full_it_is_the_baseline_and_some_is_between(engine: Engine) -> None:
    entries = played(library.scenario("branch-solve-merge")(), engine, mode="baseline", max_tokens=6)
    tokenizer = engine.fingerprint["tokenizer"]
    workflow = exported("branch-solve-merge", "x", {}, (), entries, tokenizer)
    serial = workflow.model_copy(
        update={
            "messages": tuple(m.model_copy(update={"offsets": None, "new_offset": None}) for m in workflow.messages)
        }
    )
    before = rows(serial, Arm(ReusePolicy("baseline"), engine))

    def far(repair: str | None) -> float:
        reuse = ReusePolicy("choreographed", "audit", repair=None if repair is None else parsed_repair(repair))
        return float(apart(before, rows(serial, Arm(reuse, engine))).kl.mean())

    assert far("full") < 1e-7
    assert far("top-k:1.0") < 1e-7
    assert far(None) > 0.01
    assert 1e-7 < far("top-k:0.3") != far(None)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"repair": "some"}, "'some' is none of first-k:TOKENS"),
        ({"repair": "first-k:-1"}, "none of"),
        ({"repair": "top-k:0"}, "none of"),
        ({"repair": "full", "mode": "baseline"}, "repair needs choreographed mode with reuse=rotate"),
        ({"repair": "full", "in_place": True}, "repair needs choreographed mode with reuse=rotate"),
        ({"repair": "full", "reuse": "ape"}, "repair needs choreographed mode with reuse=rotate"),
        ({"reuse": "fast"}, "'fast' is none of rotate, in-place and ape"),
        ({"reuse": "ape:0.9"}, "'ape:0.9' is none of"),
        ({"reuse": "ape:0.9,0"}, "none of"),
        ({"reuse": "in-place", "mode": "baseline"}, "reuse has no effect in baseline mode"),
        (
            {"reuse": "ape", "model": "openai:x", "base_url": "http://127.0.0.1:1/v1"},
            "its server manages its encodings",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(how: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        RunConfig.model_validate(how)


def test_repairs_are_read() -> None:
    named = ("first-k:16", "epic:16", "top-k:.5", "top-k:1", "cacheblend:0.2", "full")
    assert [parsed_repair(text) for text in named] == [
        FirstK(16),
        Epic(16),
        TopK(0.5),
        TopK(1.0),
        CacheBlend(0.2),
        Full(),
    ]


def test_ways_of_reading_are_read() -> None:
    ways = ("rotate", "in-place", "ape", "ape:0.5,.8", "ape:1,1")
    policies = [RunConfig(reuse=way).policy for way in ways]
    assert [policy.in_place for policy in policies] == [False, True, True, True, True]
    assert [policy.ape for policy in policies] == [None, None, Ape(0.9, 0.9), Ape(0.5, 0.8), Ape(1.0, 1.0)]
    with pytest.warns(DeprecationWarning, match="is now RunConfig") as told:
        assert RunConfig(in_place=True).policy == RunConfig(reuse="in-place").policy
    assert told[0].filename == __file__
