"""Views that judge: what is repaired for their caller alone, records, and resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentcho import Agent, Game, RunConfig, Scenario, View, canonical_transcript
from agentcho.audit.planned import audit_traces
from agentcho.audit.verdict import GameVerdict
from agentcho.games.runs.replay import replay
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.provenance.labels import EncodingRecord
from agentcho.records.record import SavedRun, find
from agentcho.records.trace import exported, write_traces
from agentcho.records.transcript import TranscriptEntry
from agentcho.reuse.ends import Ends
from agentcho.reuse.first_k import FirstK
from agentcho.reuse.registry import parsed_repair
from agentcho.testing import FakeEngine

from .test_repair import played


class Talker(Agent):
    """Speaks to everyone."""

    audience = "everyone"


class Vote(Scenario):
    """Alice and Bob propose something after a plan each; Carol judges, then speaks over the same without judging."""

    name = "vote"
    reuse: Any = "judge"

    async def play(self, game: Game) -> Any:
        cast = [game.cast(Talker, name, system=f"be {name}") for name in ("alice", "bob", "carol")]
        for each in cast[:2]:
            await each.think("plan")
        said = [(await each.say()).id for each in cast[:2]]
        view = View.of([cast[2].brief, *said])
        await cast[2].say(prompt="Which one?", view=view._replace(reuse=self.reuse))
        await cast[2].say(view=view)
        return self.Outcome()


class Plain(Vote):
    """The same without a judge."""

    name = "plain"
    reuse = None


def said_by_carol(entries: list[TranscriptEntry]) -> tuple[EncodingRecord, EncodingRecord]:
    own = [entry.own for entry in entries if entry.message.author == "carol" and entry.message.kind == "decode"]
    judged, plain = own
    assert judged is not None
    assert plain is not None
    return judged, plain


def repaired(entries: list[TranscriptEntry]) -> list[EncodingRecord]:
    return [record for entry in entries for record in entry.made if record.recipe == "repaired"]


@pytest.mark.parametrize("leakage", ["audit", "enforce"])
def test_what_a_judge_reads_is_repaired_for_it_alone(leakage: str) -> None:
    entries = played(Vote(), leakage=leakage)
    made = repaired(entries)
    assert [(record.caller, record.message) for record in made] == [("carol", "alice.3"), ("carol", "bob.3")]
    assert all(record.receipt.base is None for record in made)
    ids = {record.id for record in made}
    judged, plain = (
        entry.own for entry in entries if entry.message.author == "carol" and entry.message.kind == "decode"
    )
    assert judged is not None
    assert plain is not None
    assert ids <= {read.id for read in judged.receipt.context}
    assert not ids & {read.id for read in plain.receipt.context}


@pytest.mark.parametrize("repair", ["first-k:2", "full", "kvcomm"])
def test_it_wins_over_what_the_run_asks_for(repair: str) -> None:
    entries = played(Vote(), repair=repair)
    judged, plain = (
        entry.own for entry in entries if entry.message.author == "carol" and entry.message.kind == "decode"
    )
    assert judged is not None
    assert plain is not None
    records = {record.id: record for record in repaired(entries)}
    first = [records[read.id] for read in judged.receipt.context if read.id in records]
    then = [records[read.id] for read in plain.receipt.context if read.id in records]
    assert len(first) == len(then) == 2
    assert all(record.receipt.base is None for record in first)
    assert all((record.receipt.base is None) == (repair != "first-k:2") for record in then), "no anchors come of it"
    assert not {record.id for record in first} & {record.id for record in then}


@pytest.mark.parametrize("how", [{"mode": "baseline"}, {"reuse": "in-place"}, {"reuse": "ape"}])
def test_it_says_nothing_where_nothing_is_repaired(how: dict[str, Any]) -> None:
    def context(scenario: Scenario) -> list[Any]:
        return [(entry.message.tokens, entry.own and entry.own.receipt) for entry in played(scenario, **how)]

    assert context(Vote()) == context(Plain())


@pytest.mark.parametrize("leakage", ["audit", "enforce"])
def test_what_is_encoded_anew_carries_nothing_of_others(leakage: str) -> None:
    found: dict[str, set[str]] = {}
    for reading in GameVerdict(0, played(Vote(), leakage=leakage)).readings():
        found.setdefault(reading.edge.call, set()).add(reading.edge.verdict)
    assert found["carol.2"] == {"clean"}
    assert ("transitive" in found["carol.3"]) == (leakage == "audit")


def test_it_is_on_record_and_in_a_trace() -> None:
    entries = played(Vote())
    assert [TranscriptEntry.from_json(entry.to_json()) for entry in entries] == entries
    judged = {entry.message.id for entry in entries if entry.act.reuse == "judge"}
    assert judged == {"carol.1", "carol.2"}
    trace = exported("vote", "x", {}, (), entries, None)
    assert {message.id for message in trace.messages if message.reuse} == judged
    assert "reuse" not in exported("vote", "x", {}, (), played(Plain()), None).to_json()["messages"][-1]


@pytest.mark.parametrize("leakage", ["audit", "enforce"])
def test_a_trace_of_it_is_replayed_and_audited_as_it_was_played(leakage: Any, tmp_path: Path) -> None:
    entries = played(Vote(), leakage=leakage)
    trace = exported("vote", "x", {}, (), entries, None)
    again = replay(trace, FakeEngine(), leakage=leakage, logits=False).entries

    def made(of: list[TranscriptEntry]) -> set[Any]:
        return {(r.message, r.caller, r.recipe, r.cone) for entry in of for r in entry.made if r.recipe == "repaired"}

    assert made(again) == made(entries) != set()
    write_traces(tmp_path / "vote.jsonl", [trace])
    found = audit_traces(tmp_path / "vote.jsonl", "choreographed", leakage)
    assert {edge.call for edge in found.edges if edge.reader == "carol"} == (
        {"carol.3"} if leakage == "audit" else set()
    )


def test_what_it_repairs_can_be_asked_for() -> None:
    trace = exported("vote", "x", {}, (), played(Vote()), None)
    some = replay(trace, FakeEngine(), logits=False, judge=FirstK(2)).entries
    assert all(record.receipt.base is not None for record in repaired(some))
    assert [record.receipt.base for record in repaired(replay(trace, FakeEngine(), logits=False).entries)] == [
        None,
        None,
    ]
    assert repaired(replay(trace, FakeEngine(), mode="baseline", logits=False, judge=FirstK(2)).entries) == []


class Cut(Vote):
    """The same; its code fails after the judge has spoken while `fails` is set."""

    fails = False

    async def play(self, game: Game) -> Any:
        outcome = await super().play(game)
        if Cut.fails:
            raise OSError("somebody else's disk")
        return outcome


def test_a_game_that_is_gone_on_with_has_the_same(tmp_path: Path) -> None:
    config = RunConfig(max_tokens=6)
    play(RunRequest(Cut(), config, engine=FakeEngine(), out=tmp_path / "whole"))
    try:
        Cut.fails = True
        play(RunRequest(Cut(), config, engine=FakeEngine(), out=tmp_path / "cut"))
    finally:
        Cut.fails = False
    whole, cut = (find("last", tmp_path / name) for name in ("whole", "cut"))
    assert cut.finished()[0].error is not None
    play(RunRequest.resuming(cut, Cut(), engine=FakeEngine()))
    one, other = canonical_transcript(whole)[0], canonical_transcript(SavedRun(cut.path))[0]
    assert any(line["recipe"] == "repaired" for line in one["encodings"])
    assert one == other


def test_what_is_no_reuse_of_a_view_is_refused() -> None:
    class Odd(Vote):
        name = "odd"
        reuse = "fast"

    ended = play(RunRequest(Odd(), RunConfig(max_tokens=4), engine=FakeEngine()))
    assert "reuse of a view is 'fast'; give \"judge\"" in str(ended.error)


def test_both_ends_are_places_of_a_message() -> None:
    assert Ends(2, 1).places(5) == (0, 1, 4)
    assert Ends(0, 2).places(5) == (3, 4)
    assert Ends(4, 4).places(5) == (0, 1, 2, 3, 4)
    assert FirstK(2).places(5) == Ends(2, 0).places(5) == (0, 1)
    assert parsed_repair("ends:0,8") == Ends(0, 8)
    for text in ("ends:0,0", "ends:8", "ends:1,-1", "ends:a,b"):
        with pytest.raises(ValueError, match="ends:FIRST,LAST"):
            parsed_repair(text)
