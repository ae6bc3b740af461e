"""Plays measured games on the workers of a cluster."""

from __future__ import annotations

from functools import partial
from typing import Any

from agentcho.config import RunConfig
from agentcho.integrations.ray.remote import RemoteEngine
from agentcho.integrations.ray.runs import Players
from agentcho.lab.collect import Playing
from agentcho.protocol.progress import ProgressCallback
from agentcho.scenario import Scenario


def remote_playing(
    workers: Players,
    scenario: Scenario,
    configs: tuple[RunConfig, RunConfig],
    at_once: int | None,
    tell: ProgressCallback,
) -> Playing:
    """The `Playing` whose games run on workers. `configs` holds the config of the games, then the config that the
    model is loaded with."""
    config, loading = configs
    engine: Any = RemoteEngine(workers, scenario, loading)
    return Playing(
        scenario=scenario,
        config=config,
        engine=engine,
        at_once=at_once,
        play_on=engine.play,
        here=partial(engine.here, tell),
    )
