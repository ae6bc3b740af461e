"""Tools on workers: a call is recorded before it is made, and calls of a dead worker are not repeated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentcho.audit import audit_run
from agentcho.config import RunConfig
from agentcho.events import Called, Calling
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import RunResult
from agentcho.games.runs.runtime import play as play_run
from agentcho.integrations.ray.driver import Driver, Timeouts
from agentcho.integrations.ray.runs import Players, play
from agentcho.integrations.ray.work import Answer, ToolCallNote, WorkerLost, WorkerReport
from agentcho.records.record import SavedRun
from agentcho.testing import FakeEngine

from .threads import Heard, dying, threads

QUICK = Timeouts(gathering=0.2, hello=5, loading=5, silence=5, beat=0.05)
PAYS = '''
from pathlib import Path
import agentcho

@agentcho.tool(audience="nobody")
def pay() -> str:
    "Pay."
    here = Path(__file__).parent
    noted = [line for file in here.glob("out/*/calls.jsonl") for line in file.read_text().splitlines()]
    with here.joinpath("paid").open("a") as file:
        file.write(f"{len(noted)}\\n")
    return "paid"

class Pays(agentcho.Scenario):
    """Ann pays twice."""
    name = "pays"

    async def play(self, game):
        ann = game.cast(agentcho.Agent, name="ann", tools=[pay])
        for _ in range(2):
            await ann.say(to="everyone", tool_choice="required", max_calls=1)
        return self.Outcome()
'''


@pytest.fixture
def pays(tmp_path: Path) -> str:
    (tmp_path / "pays.py").write_text(PAYS)
    return str(tmp_path / "pays.py")


def played(tmp_path: Path, name: str, hear: Heard, games: int = 2, deaths: int = 2) -> RunResult:
    with threads(hear) as pool:
        driver = Driver(pool, 1, deaths, print, QUICK)
        config = RunConfig(model="fake", games=games)
        return play(
            Players(driver, name), RunRequest(library.scenario(name)(), config, out=tmp_path / "out", named=name)
        )


def paid(tmp_path: Path) -> list[str]:
    return (tmp_path / "paid").read_text().splitlines()


def test_a_call_is_on_record_before_a_worker_makes_it(tmp_path: Path, pays: str) -> None:
    run = played(tmp_path, pays, lambda worker, answer: answer, games=1)
    assert run.record is not None
    assert not run.errors
    assert paid(tmp_path) == ["1", "3"]
    lines = [json.loads(line) for line in (run.record / "calls.jsonl").read_text().splitlines()]
    assert [("tool" in line, line["call"]) for line in lines] == [
        (True, "ann.0.step0"),
        (False, "ann.0.step0"),
        (True, "ann.1.step0"),
        (False, "ann.1.step0"),
    ]


def test_what_a_dead_worker_called_is_not_called_again(tmp_path: Path, pays: str) -> None:
    run = played(tmp_path, pays, dying(0), games=1)
    assert run.record is not None
    assert not run.errors
    assert len(paid(tmp_path)) == 2
    results = [entry.message.text for entry in SavedRun(run.record).games()[0] if entry.origin == "tool"]
    assert results == ["paid", "paid"]


def test_a_call_under_way_when_its_worker_died_stops_its_game(tmp_path: Path, pays: str) -> None:
    left = [True]

    def hear(worker: int, answer: Answer) -> Answer:
        begun = isinstance(answer, WorkerReport) and any(isinstance(note.event, Called) for note in answer.notes)
        return WorkerLost("killed") if begun and left and left.pop() else answer

    run = played(tmp_path, pays, hear, games=1)
    assert "ann.0.step0 called a tool" in str(run.error)
    assert len(paid(tmp_path)) == 1
    assert run.record is not None
    said = SavedRun(run.record).games()[0]
    assert (said[-1].message.id, [entry for entry in said if entry.origin == "tool"]) == ("ann.0.step0", [])


def test_notes_are_of_calls_alone(tmp_path: Path, pays: str) -> None:
    notes = list[ToolCallNote]()

    def hear(worker: int, answer: Answer) -> Answer:
        notes.extend(answer.notes if isinstance(answer, WorkerReport) else ())
        return answer

    played(tmp_path, pays, hear, games=1)
    assert [type(note.event) for note in notes] == [Calling, Called, type(None)] * 2
    assert [len(note.said) for note in notes] == [2, 0, 1, 2, 0, 1]


def test_what_was_called_is_on_record_though_its_game_was_given_up(tmp_path: Path, pays: str) -> None:
    """Ann's second payment is in progress when the worker dies; a resumed game does not repeat the first."""
    ended = list[Called]()

    def hear(worker: int, answer: Answer) -> Answer:
        if isinstance(answer, WorkerReport):
            ended.extend(note.event for note in answer.notes if isinstance(note.event, Called))
        return WorkerLost("killed") if len(ended) == 2 else answer

    run = played(tmp_path, pays, hear, games=1, deaths=0)
    assert run.record is not None
    assert [over.failed for over in run.games] == [True]
    saved = SavedRun(run.record)
    assert [entry.message.text for entry in saved.games()[0] if entry.origin == "tool"] == ["paid"]
    assert all(entry.own is not None for entry in saved.games()[0] if entry.origin == "sampled")
    assert "ann.1.step0 called a tool" in str(
        play_run(RunRequest.resuming(saved, library.scenario(pays)(), engine=FakeEngine())).error
    )
    again = play_run(RunRequest.resuming(saved, library.scenario(pays)(), engine=FakeEngine(), redo=["0:ann.1.step0"]))
    assert not again.errors
    assert len(paid(tmp_path)) == 3
    results = [entry.message.id for entry in saved.games()[0] if entry.origin == "tool"]
    assert results == ["ann.0.step0.result", "ann.1.step0.result"]
    assert audit_run(SavedRun(run.record)).conclusion == "clean"
