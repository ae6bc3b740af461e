"""A chain of messages on record: a line is only as long as what its message read directly, and what a record no longer
states about a message is never assumed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentcho import Agent, Game, RunConfig, View
from agentcho.audit import audit_run
from agentcho.config import Leakage
from agentcho.events import Ended, Event
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.records.record import SavedRun
from agentcho.records.transcript import LISTED, TranscriptEntry
from agentcho.testing import FakeEngine

from .choreography.stage import Scripted

LENGTH = LISTED + 16
"""The length of a chain whose last cone is too long to be listed."""


def chain(folder: Path, length: int, leakage: Leakage = "audit") -> tuple[SavedRun, list[TranscriptEntry]]:
    """The record, and the entries as reported: Alice's secret, `length` messages of hers, each over the last (first
    said, then told), and Bob's over the last of them."""
    told = list[TranscriptEntry]()

    def hear(event: Event) -> None:
        if isinstance(event, Ended):
            told.append(event.entry)

    async def script(game: Game) -> None:
        alice, bob = game.cast(Agent, "alice", audience="everyone"), game.cast(Agent, "bob", audience="everyone")
        last = (await alice.think()).id
        for _ in range(length // 2):
            last = (await alice.say(view=View.of([last]))).id
        for _ in range(length - length // 2):
            last = await alice.tell("go on", view=View.of([last]))
        await bob.say(view=View.of([last]))

    config = RunConfig(model="fake", leakage=leakage, max_tokens=1)
    played = play(RunRequest(Scripted(script), config, engine=FakeEngine(), out=folder, sink=hear))
    assert played.record is not None
    return SavedRun(played.record), told


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda file: None)


def cones(entries: list[TranscriptEntry]) -> dict[int, set[str]]:
    return {record.id: set(record.cone) for entry in entries for record in entry.made}


def size(run: SavedRun) -> int:
    return sum((run.path / name).stat().st_size for name in ("transcript.jsonl", "heard.jsonl"))


@pytest.mark.parametrize("leakage", ["audit", "enforce"])
def test_a_chain_is_read_as_it_was_told(tmp_path: Path, leakage: Leakage) -> None:
    run, told = chain(tmp_path, 2 * LENGTH, leakage)
    assert run.entries() == told
    assert cones(run.entries()) == cones(told)
    assert max(map(len, cones(told).values())) > LISTED
    lines = [record for line in _lines(run) for record in line["encodings"]]
    assert {"cone" in record for record in lines} == {True, False}
    assert all(len(record.get("cone", ())) <= LISTED for record in lines)


def test_what_stands_in_many_contexts_is_read_into_one_object(tmp_path: Path) -> None:
    async def script(game: Game) -> None:
        alice = game.cast(Agent, "alice", audience="everyone")
        for _ in range(6):
            await alice.say()

    played = play(
        RunRequest(Scripted(script), RunConfig(model="fake", max_tokens=1), engine=FakeEngine(), out=tmp_path)
    )
    assert played.record is not None
    entries = SavedRun(played.record).entries()
    pieces = [piece for entry in entries for record in entry.made for piece in record.receipt.context]
    assert len(pieces) > len(set(pieces)) == len(set(map(id, pieces)))


@pytest.mark.slow
def test_twice_as_long_a_chain_takes_twice_the_room(tmp_path: Path) -> None:
    once, twice = (size(chain(tmp_path / str(length), length)[0]) for length in (4 * LISTED, 8 * LISTED))
    assert twice < 2.1 * once


def test_what_leaks_through_a_long_chain_is_found(tmp_path: Path) -> None:
    run, _ = chain(tmp_path, LENGTH)
    report = audit_run(run)
    assert [finding.rule for finding in report.findings if finding.level == "error"] == ["AC002"]
    assert report.findings[0].hops == LENGTH


def without_context(record: dict[str, Any]) -> None:
    record["context"] = []


def elsewhere(record: dict[str, Any]) -> None:
    record["start"] += 1


def anothers(record: dict[str, Any]) -> None:
    record["context"] = [[record["context"][0][0] - 1, *record["context"][0][1:]]]


def all_of_a_piece(record: dict[str, Any]) -> None:
    """Make the listed cone consistent with a context that has been emptied."""
    record["context"] = []
    if "cone" in record:
        record["cone"] = [record["message"]]


CHANGES = (without_context, elsewhere, anothers, all_of_a_piece)


@pytest.mark.parametrize(
    "place", [3, LISTED + 4, *(pytest.param(n, marks=pytest.mark.slow) for n in (LISTED // 2, LENGTH))]
)
@pytest.mark.parametrize("change", CHANGES)
def test_a_receipt_that_was_changed_breaks_what_stands_on_it(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], place: int
) -> None:
    run, told = chain(tmp_path, LENGTH)
    lines = _lines(run)
    records = sorted((record for line in lines for record in line["encodings"]), key=lambda record: record["id"])
    change(records[place])
    (run.path / "transcript.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    read, whole = cones(run.entries()), cones(told)
    assert all(read[id] in (whole[id], set()) for id in read if id > records[place]["id"])
    assert read[records[-1]["id"]] == set(), "Bob's, at the end of it"
    report = audit_run(run)
    assert "AC004" in {finding.rule for finding in report.findings}
    assert (report.conclusion, report.exit_code("error")) == ("findings", 1)


def test_of_a_chain_that_was_killed_what_was_heard_has_its_cone(tmp_path: Path) -> None:
    run, told = chain(tmp_path, LENGTH)
    file = run.path / "transcript.jsonl"
    kept = file.read_text().splitlines(True)[:-1]
    file.write_text("".join(kept))
    [died] = [entry for entry in run.entries() if entry.ended == "died"]
    assert died.own is not None
    assert set(died.own.cone) == cones(told)[died.own.id]
    assert cones(run.entries()) == cones(told)


@pytest.mark.slow
def test_ten_thousand_are_written_and_read(tmp_path: Path) -> None:
    run, told = chain(tmp_path, 10_000)
    assert size(run) < 20_000_000
    entries = run.entries()
    assert len(entries) == len(told) == 10_002
    assert len(entries[-1].made[-1].cone) == 10_002


def _lines(run: SavedRun) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / "transcript.jsonl").read_text().splitlines()]
