"""A sweep on workers: the games equal those of one process; each worker loads each model once, and one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentcho.config import ModelConfig, RunConfig
from agentcho.games.play.game_models import LoadedEngines
from agentcho.integrations.endpoints import endpoint
from agentcho.integrations.ray.config import ClusterConfig
from agentcho.integrations.ray.driver import Driver
from agentcho.integrations.ray.players import Cluster
from agentcho.integrations.ray.runs import Players
from agentcho.lab.sweep.axes import Value
from agentcho.lab.sweep.folder import Folder
from agentcho.lab.sweep.grid import Fixed, as_model
from agentcho.lab.sweep.plan import planned
from agentcho.lab.sweep.result import SweepResult
from agentcho.lab.sweep.run import SweepOptions, prepared, swept
from agentcho.protocol.progress import no_progress
from agentcho.testing import FakeEndpoint, FakeEngine
from tests.cluster.test_driver import NAME, QUICK
from tests.cluster.threads import Threads, dying, threads

pytestmark = pytest.mark.slow
RAY = Cluster(ClusterConfig(on="ray"), 2)
GRID: dict[str, list[Any]] = {"strategy": ["none", "always-defect"], "seed": [1, 2]}


@pytest.fixture(autouse=True)
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcho.lab.sweep.run.lacking", lambda: "a picture")
    monkeypatch.setattr("agentcho.lab.sweep.figures.find_spec", lambda name: None)


def sweep(out: Path, on: Cluster | None, models: tuple[Value, ...] = (), games: int = 3) -> SweepResult:
    run = {"games": games, **({} if models else {"model": "fake"})}
    asked = SweepOptions(NAME, GRID, models, Fixed({"rounds": 1}, run), out=out, on=on)
    found = prepared(asked)
    return swept(asked, found, planned(found, Folder(out)), no_progress)[0]


def played(found: SweepResult) -> list[Any]:
    """Every game, without its duration."""
    return [(cell.values, [game.model_copy(update={"seconds": 0}) for game in cell.games]) for cell in found.cells]


def on_workers(patch: pytest.MonkeyPatch, pool: Threads) -> list[RunConfig]:
    """Makes two workers of a pool play sweeps from now on; returns the list of configurations that they were given."""
    asked: list[RunConfig] = []

    @contextmanager
    def players(on: Cluster, scenario: str, config: RunConfig, heard: Any) -> Iterator[Players]:
        asked.append(config)
        yield Players(Driver(pool, 2, 2, print, QUICK), scenario, heard)

    patch.setattr("agentcho.lab.sweep.run.players", players)
    return asked


def test_whoever_plays_it_is_the_same_sweep_and_it_goes_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with threads(dying(1)) as pool:
        on_workers(monkeypatch, pool)
        there = sweep(tmp_path / "there", RAY)
        more = sweep(tmp_path / "there", RAY, games=4)
    assert played(there) == played(sweep(tmp_path / "here", None))
    assert [len(cell.records) for cell in more.cells] == [2, 2, 2, 2], "one game more was played of each"
    assert played(sweep(tmp_path / "there", None, games=5)) == played(sweep(tmp_path / "other", None, games=5))


def test_models_are_loaded_one_after_the_other_and_those_behind_an_api_are_asked_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    here = 0

    class Closing(FakeEngine):
        def close(self) -> None:
            nonlocal here
            here -= 1
            super().close()

    def load(config: RunConfig, engine: Any, share: float) -> LoadedEngines:
        nonlocal here
        assert here == 0, "one at a time"
        here += 1
        loaded.append(config.model)
        return LoadedEngines(Closing(), {})

    monkeypatch.setattr("agentcho.integrations.ray.worker.load_share", load)
    port = FakeEndpoint()
    monkeypatch.setattr(endpoint, "open_endpoint", lambda config, name: port)
    far = ModelConfig(model="openai:far", base_url="http://127.0.0.1:1/v1")
    models = (as_model("far", far), *(as_model(name, ModelConfig(model=name)) for name in ("one", "two")))
    with threads() as pool:
        asked = on_workers(monkeypatch, pool)
        monkeypatch.setattr("agentcho.integrations.ray.driver.Driver.__init__", _alone(Driver.__init__))
        found = sweep(tmp_path, RAY, models, games=2)
    assert (found.whole, [config.model for config in asked]) == (True, ["one"])
    assert loaded == ["one", "two"]
    assert {call.messages[0].name for call in port.calls} == {None}


def _alone(init: Any) -> Any:
    """A driver with one worker, so that model loads can be counted."""

    def made(self: Driver, pool: Any, workers: int, *more: Any) -> None:
        init(self, pool, 1, *more)

    return made
