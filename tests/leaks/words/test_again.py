"""A run with a rule for words charges the same if it is interrupted, played by workers, compared or replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentcho import RunConfig
from agentcho.audit.audit import audit_run
from agentcho.errors import ResumeMismatch
from agentcho.events import Ended, Event
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.integrations.ray import runs
from agentcho.integrations.ray.driver import Driver
from agentcho.integrations.ray.runs import Players
from agentcho.records.canonical import canonical_transcript
from agentcho.records.record import SavedRun
from agentcho.scenario import Scenario
from tests.cluster.test_driver import QUICK
from tests.cluster.threads import threads

AUCTION = str(Path(__file__).parents[3] / "examples" / "words.py")
CONFIG = RunConfig(model="fake", games=2, seed=3, words="refuse", leak_budget=5)


def auction() -> Scenario:
    return library.scenario(AUCTION)()


def told(run: Path | None) -> Any:
    """The transcript of a run, and its ledger of words."""
    saved = SavedRun(run or Path())
    return canonical_transcript(saved), audit_run(saved).words


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An uninterrupted run."""
    out = tmp_path_factory.mktemp("whole")
    found = told(play(RunRequest(auction(), CONFIG, out=out, named=AUCTION)).record)
    assert found[1] is not None
    assert len(found[1].rows) == 9
    assert found[1].unaccounted == 0
    return found


@pytest.mark.parametrize("after", [1, 7, 8, 9, 13, 20])
def test_a_run_that_is_broken_off_goes_on_with_what_is_left(tmp_path: Path, whole: Any, after: int) -> None:
    seen: list[Event] = []

    def interrupt(event: Event) -> None:
        seen.append(event)
        if sum(isinstance(each, Ended) for each in seen) == after:
            raise KeyboardInterrupt

    cut = play(RunRequest(auction(), CONFIG, out=tmp_path, sink=interrupt, named=AUCTION))
    saved = SavedRun(cut.record or tmp_path)
    with pytest.raises(ResumeMismatch, match="leak_budget"):
        play(RunRequest.resuming(saved, auction(), CONFIG.model_copy(update={"leak_budget": 6.0})))
    play(RunRequest.resuming(saved, auction(), CONFIG))
    assert told(saved.path) == whole


def test_workers_charge_what_one_process_charges(tmp_path: Path, whole: Any) -> None:
    with threads() as pool:
        players = Players(Driver(pool, 2, patience=QUICK), AUCTION)
        played = runs.play(players, RunRequest(auction(), CONFIG, out=tmp_path, named=AUCTION))
    assert told(played.record) == whole
