"""Speculative decoding: the same words in fewer steps, by a cost table that is recorded and used again."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from agentcho.config import RunConfig
from agentcho.errors import RecordBroken
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import RunResult, play
from agentcho.protocol.forward_costs import ForwardCosts, validated_costs
from agentcho.records.names import INFO
from agentcho.records.record import SavedRun
from agentcho.runner.engine import Engine
from agentcho.runner.runner import TorchRunner

CHEAP = ForwardCosts((1, 64), (0, 1), ((1.0, 1.001),) * 2)
SOMEWHAT = ForwardCosts((1, 64), (0, 1), ((1.0, 2.0),) * 2)


def game(engine: Engine, out: Path | None = None, costs: ForwardCosts | None = None, **options: Any) -> RunResult:
    """Two games of the dilemma, with speculation if `costs` is given."""
    if costs is not None:
        engine.speculate(costs)
    how = {"max_tokens": 24, "games": 2, "temperature": 0.01, "speculate": costs is not None, **options}
    return play(RunRequest(library.scenario("prisoners-dilemma")(), RunConfig(**how), engine=engine, out=out))


def words(record: Path | None) -> set[tuple[int, str, str]]:
    assert record is not None
    return {(said.message.game, said.message.id, said.message.text) for said in SavedRun(record).entries()}


OTHERS = [pytest.param(how, marks=pytest.mark.slow) for how in ({"leakage": "audit"}, {"mode": "baseline"})]


@pytest.mark.parametrize("how", [{}, *OTHERS], ids=["enforce", "audit", "baseline"])
@pytest.mark.slow
def test_a_run_says_the_same_in_fewer_steps(llama: Engine, tmp_path: Path, how: dict[str, Any]) -> None:
    plain, quick = (game(llama, tmp_path / str(costs is None), costs, **how) for costs in (None, CHEAP))
    assert words(plain.record) == words(quick.record)
    assert quick.steps < plain.steps


@pytest.mark.slow
def test_the_table_is_on_record_and_a_run_that_goes_on_goes_by_it(llama: Engine, tmp_path: Path) -> None:
    saved = SavedRun(game(llama, tmp_path, CHEAP).record or tmp_path)
    assert saved.info.costs == {"default": CHEAP}
    (saved.path / "outcomes.jsonl").unlink()
    llama.speculate(SOMEWHAT)
    play(RunRequest.resuming(saved, library.scenario("prisoners-dilemma")(), engine=llama))
    assert llama.speculate() == CHEAP
    assert SavedRun(saved.path).info.costs == {"default": CHEAP}


@pytest.mark.slow
def test_a_table_that_is_none_is_no_record(llama: Engine, tmp_path: Path) -> None:
    path = game(llama, tmp_path, CHEAP, games=1).record or tmp_path
    text = (path / INFO).read_text()
    (path / INFO).write_text(text.replace("1.001", "-1.0"))
    with pytest.raises(RecordBroken, match="not a table of seconds per forward"):
        SavedRun(path)


def test_what_was_measured_is_a_table_and_leaves_nothing(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcho.runner.costs.SECONDS", 0.0)
    found, used = llama.speculate(), llama.fullness.used
    assert found is not None
    assert validated_costs(found) == found
    for row in found.seconds:
        assert [*row] == sorted(row)
    assert llama.fullness.used == used
    assert not len(llama._runner.slots)
    assert llama.speculate() == found  # measured only once
    llama.check_integrity()


@pytest.mark.slow
def test_costs_are_measured_in_a_thread_that_ends_with_it(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch keeps a pool of compute threads for each thread that calls it, and a second pool slows the first down."""
    threads = set[threading.Thread]()
    step = TorchRunner.step

    def seen(self: TorchRunner, *given: Any) -> Any:
        threads.add(threading.current_thread())
        return step(self, *given)

    monkeypatch.setattr(TorchRunner, "step", seen)
    llama._runner.costs = None
    llama.speculate()
    (thread,) = threads
    assert thread is not threading.current_thread()
    assert not thread.is_alive()


def test_a_depth_between_two_is_between_them_and_one_beyond_goes_on_as_they_do() -> None:
    costs = ForwardCosts((1, 3), (10, 20), ((1.0, 2.0), (3.0, 6.0)))
    assert costs.at(10).seconds == costs.at(0).seconds == (1.0, 2.0)
    assert costs.at(15).seconds == (2.0, 4.0)
    assert costs.at(30).seconds == (5.0, 10.0)
    assert costs.at(20).of(2) == 4.5
    assert costs.at(20).of(5) == 9.0


def test_what_another_adapter_costs_is_taken_from_its_network(llama: Engine) -> None:
    llama.speculate(CHEAP)
    with llama.adapted(None) as other:
        assert other.speculate() == CHEAP
