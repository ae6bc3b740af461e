"""`agentcho paper --on ray` with workers in threads: the rows equal those of one process, though workers die."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentcho.config import RunConfig
from agentcho.integrations.ray.config import ClusterConfig
from agentcho.integrations.ray.driver import Driver, Timeouts
from agentcho.integrations.ray.players import Cluster
from agentcho.integrations.ray.runs import Players
from agentcho.lab.collect import Playing
from agentcho.lab.commands.paper_run import ByWorkers
from agentcho.lab.paper.found import PaperFound
from agentcho.lab.paper.phases import Phases
from agentcho.lab.paper.reproduction import PaperRequest, Reproduction
from agentcho.lab.paper.rows import World
from agentcho.protocol.progress import no_progress
from agentcho.scenario import Scenario
from agentcho.testing import FakeEngine

from .threads import dying, threads

QUICK = Timeouts(gathering=0.2, hello=5, loading=5, silence=5, beat=0.05)
REQUEST = PaperRequest(("3",), 2, True, "generators", {}, "agentcho paper")


def found(folder: Path, open_: Any) -> PaperFound:
    config = RunConfig(model="fake", leakage="audit", max_tokens=8)
    world = World(config, open_, FakeEngine, folder, no_progress, True)
    return Reproduction(world, REQUEST, Phases(folder / "phases.jsonl", None)).run()


@pytest.mark.slow
def test_rows_are_played_by_workers_as_by_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    @contextmanager
    def players(on: Cluster, scenario: str, config: RunConfig, heard: Any) -> Iterator[Players]:
        with threads(dying(0)) as pool:
            yield Players(Driver(pool, 1, 2, print, QUICK), scenario, heard)
            started.extend(pool.started)

    def here(scenario: Scenario, config: RunConfig) -> Playing:
        return Playing(scenario, config, engine)

    def there(scenario: Scenario, config: RunConfig) -> Playing:
        return Playing(scenario, config, workers, None, workers.play)

    monkeypatch.setattr("agentcho.lab.commands.paper_run.players", players)
    engine: Any = FakeEngine()
    workers: Any = ByWorkers(Cluster(ClusterConfig(on="ray"), 2), RunConfig(model="fake", leakage="audit"))
    alone, together = found(tmp_path / "one", here), found(tmp_path / "two", there)
    assert len(started) > 6
    assert together.tables == alone.tables
    assert together.model == alone.model
