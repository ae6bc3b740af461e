"""A run killed at any write: everything that reads records shows what there is, and that it is incomplete."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentcho import Agent, Game, RunConfig, Scenario
from agentcho.audit import AuditReport, audit_run
from agentcho.audit.planned import audit_traces
from agentcho.config import Leakage
from agentcho.display.saved import Replay
from agentcho.games.runs.replay import replay
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.lab.collect import collected
from agentcho.records.canonical import canonical_transcript
from agentcho.records.record import SavedRun
from agentcho.records.trace import Workflow, read_traces, write_traces
from agentcho.records.transcript import TranscriptEntry
from agentcho.records.writer_lock import NAME, WriterLock
from agentcho.testing import FakeEngine

from .killed import Written

GAMES = 2
BABBLE = ("yes", "no", "maybe", "trust", "me", "we", "talk", "again")
STOPS = [FakeEngine().framing.content.encode(f" {word}")[0] for word in BABBLE]
"""The second token of every message is one of these."""


class Enough(Exception):
    """Raised to leave a stream early."""


class Cut(Scenario):
    """Two agents with secrets; a stream is left early, and a round is played."""

    name = "cut"

    async def play(self, game: Game) -> Scenario.Outcome:
        ann = game.cast(Agent, "ann", system="The word is zanzibar.", audience="everyone")
        bob = game.cast(Agent, "bob", system="You are Bob.", audience="everyone")
        await game.announce("Talk.")
        await ann.think()
        await ann.say(header="So: ")
        await ann.say(stop_token_ids=STOPS, min_tokens=1)
        try:
            async with bob.stream() as pieces:
                async for _ in pieces:
                    raise Enough
        except Enough:
            pass
        await game.together(ann.say(), bob.say())
        await bob.choose(["red", "green"], to="everyone")
        return self.Outcome()


class Killed:
    """A recorded run, and what a kill leaves of it."""

    def __init__(self, folder: Path, written: Written, leakage: Leakage) -> None:
        self._folder, self._written, self.leakage = folder, written, leakage
        config = RunConfig(model="fake", games=GAMES, max_tokens=3, leakage=leakage)
        played = play(RunRequest(Cut(), config, engine=FakeEngine(), out=folder / "runs", at_once=2))
        assert played.record is not None
        self.whole = SavedRun(played.record)
        self.writes = len(written.writes)

    def runs(self) -> Iterator[SavedRun]:
        """The record after every write, and in the middle of every third."""
        for count in range(1, self.writes + 1):
            yield self.left(count)
            if count % 3 == 0:
                yield self.left(count, torn=True)

    def left(self, count: int, torn: bool = False) -> SavedRun:
        folder = self._folder / f"{count}-{torn}"
        folder.mkdir()
        return self._written.left(folder / "cut", count, torn)


@pytest.fixture(params=[pytest.param("audit", marks=pytest.mark.slow), "enforce"])
def killed(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Killed:
    monkeypatch.setattr("os.fsync", lambda file: None)
    return Killed(tmp_path, Written(monkeypatch), request.param)


def cut_off(run: SavedRun) -> list[TranscriptEntry]:
    """The messages in progress when the process died."""
    return [entry for entries in run.games().values() for entry in entries if entry.ended == "died"]


def shown(run: SavedRun, game: int | None = None) -> str:
    paper = io.StringIO()
    Replay(run, game).plain(paper)
    return paper.getvalue()


def met(traces: list[Workflow]) -> FakeEngine:
    """A fake engine that knows the words of these traces."""
    engine = FakeEngine()
    for trace in traces:
        engine.meet(*(words for message in trace.messages for words in (message.header or "", message.text)))
    return engine


def test_there_is_something_of_every_kind_to_be_cut_off(killed: Killed) -> None:
    found = [entry for run in killed.runs() for entry in cut_off(run)]
    assert {entry.message.author for entry in found} == {"ann", "bob"}
    assert {entry.message.header for entry in found} == {"", "So: "}
    assert {len(entry.message.tokens) - (entry.message.sampled or (0, 0))[0] for entry in found} >= {1, 2, 3}
    assert {entry.message.kind for entry in found} == {"decode"}


def test_show_shows_it_and_says_that_it_died(killed: Killed) -> None:
    for run in killed.runs():
        over = run.finished()
        assert run.status == "died"
        assert f"died: {len(over)} of {GAMES} games over" in shown(run) or len(run.games()) == 1
        for game, entries in run.games().items():
            text = shown(run, game)
            last = text.splitlines()[-1]
            assert last.startswith("died: ")
            assert (f"game {game} is not over" in last) == (game not in over)
            assert text.count("[died here; nobody reads it]") == sum(entry.ended == "died" for entry in entries)
            assert all(entry.message.header + entry.message.text in text for entry in entries)


def test_while_it_is_written_nothing_has_died(killed: Killed) -> None:
    run = next(run for run in killed.runs() if cut_off(run))
    with WriterLock(run.path / NAME):
        text = shown(run, cut_off(run)[0].message.game)
    assert "died" not in text
    assert "[incomplete: the rest is not recorded yet]" in text
    assert "running (process " in text


def test_traces_have_all_of_it_and_say_that_it_is_not_whole(killed: Killed, tmp_path: Path) -> None:
    for run in killed.runs():
        write_traces(tmp_path / "t.jsonl", run.export())
        traces = read_traces(tmp_path / "t.jsonl")
        games = run.games()
        assert [trace.meta["game"] for trace in traces] == list(games)
        for trace, (game, entries) in zip(traces, games.items(), strict=True):
            assert trace.unfinished == (game not in run.finished())
            assert trace.meta["ended"] == ("unfinished: died" if trace.unfinished else None)
            assert {m.id: m.ended for m in trace.messages} == {e.message.id: e.ended for e in entries}


@pytest.mark.slow
def test_what_there_is_can_be_played_again(killed: Killed) -> None:
    """As `prove` and `compare` do: every word is forced, including those of messages that were cut off. A token that
    ended a message is forced like the others, and then appears in the text."""
    for run in killed.runs():
        for trace in (traces := run.export()):
            engine = met(traces)
            played = replay(trace, engine, leakage=killed.leakage, logits=False)
            said = {message.id: message.text for message in trace.messages if message.kind == "decode"}
            again = {id: one.entry.message.text for id, one in played.items()}
            messages = [entry.message for entry in run.games()[trace.meta["game"]]]
            ended = {each.id for each in messages if {*STOPS}.intersection(each.tokens[slice(*each.content)][-1:])}
            assert again.keys() == said.keys()
            assert all(again[id].startswith(said[id]) for id in said)
            assert {id for id in said if again[id] != said[id]} <= ended
            assert engine.pages == 0


@pytest.mark.slow
def test_no_audit_of_it_is_clean(killed: Killed, tmp_path: Path) -> None:
    for run in killed.runs():
        report = audit_run(run)
        assert report.conclusion != "clean"
        told = {(each.game, each.message) for each in report.unfinished if each.ended == "died"}
        assert told == {(entry.message.game, entry.message.id) for entry in cut_off(run)}
        _accounted_for(report)
        traces = run.export()
        write_traces(tmp_path / "t.jsonl", traces)
        planned = audit_traces(tmp_path / "t.jsonl", leakage=killed.leakage)
        assert planned.conclusion != "clean" or not any(trace.unfinished for trace in traces)


def _accounted_for(report: AuditReport) -> None:
    """Check that everything a kill leaves is labelled."""
    assert not [finding for finding in report.findings if finding.rule == "AC004"]


def test_a_comparison_takes_the_games_that_are_over_alone(killed: Killed) -> None:
    for run in killed.runs():
        found = collected(run.path.parent)
        assert found.finished == run.finished()
        assert found.said.keys() == found.workflows.keys() == found.finished.keys()
        assert not any(trace.unfinished for trace in found.workflows.values())


def test_its_canonical_form_has_what_the_whole_one_has(killed: Killed) -> None:
    whole = canonical_transcript(killed.whole)
    for run in killed.runs():
        for game, form in canonical_transcript(run).items():
            words = {message["id"]: message["text"] for message in whole[game]["messages"]}
            assert all(words[message["id"]].startswith(message["text"]) for message in form["messages"])


def test_it_goes_on_to_what_it_would_have_been(killed: Killed) -> None:
    def said(run: SavedRun) -> dict[int, Any]:
        return {
            game: sorted((e.message.id, e.message.words, e.ended) for e in entries)
            for game, entries in run.games().items()
        }

    whole = said(killed.whole)
    assert {words.stop_reason for entries in whole.values() for _, words, _ in entries} > {None}
    for count in range(1, killed.writes, 9):
        run = killed.left(count, torn=count % 2 == 0)
        play(RunRequest.resuming(run, Cut(), engine=FakeEngine()))
        after = SavedRun(run.path)
        assert (after.status, sorted(after.finished())) == ("done", list(range(GAMES)))
        assert said(after) == whole
        assert audit_run(after).conclusion == ("findings" if killed.leakage == "audit" else "clean")
