"""Opens the cluster that was requested, with its workers as the players of a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from agentcho.config import RunConfig, checked
from agentcho.errors import ConfigError
from agentcho.games.results.safe_text import inline
from agentcho.integrations.ray.config import ClusterConfig
from agentcho.integrations.ray.driver import Driver
from agentcho.integrations.ray.runs import Players
from agentcho.integrations.ray.work import Heard

DEATHS = 2
"""How many times a game whose worker died is dealt again, unless `--retries` says otherwise."""


class Cluster(NamedTuple):
    """A requested cluster, and how many times a game whose worker died is dealt again there."""

    asked: ClusterConfig
    deaths: int = DEATHS


def cluster_of(asked: Mapping[str, Any]) -> Cluster | None:
    """The cluster that these options of a function ask for, None for none. `ConfigError`: options are given that have
    no effect without `on`."""
    config = checked(ClusterConfig, **asked)
    if config.on is None and any(value is not None for value in asked.values()):
        raise ConfigError(f"{' and '.join(asked)} have no effect without on; give on too, or leave them out")
    return None if config.on is None else Cluster(config)


@contextmanager
def players(on: Cluster, scenario: str, config: RunConfig, heard: Heard = "messages") -> Iterator[Players]:
    """Workers of a cluster for games of a scenario, given by name or path; they are stopped at the end. `ConfigError`:
    a model is behind an API, whose request limits hold within one process only."""
    from agentcho.integrations.ray.ray import workers

    for model in (config.own, *config.models.values()):
        if model.served:
            raise ConfigError(
                f"--on with {model.model}: only one process may use a model behind an API; leave --on out"
            )
    device = "cpu" if config.model == "fake" else config.device
    with workers(on.asked, scenario, device) as (pool, count, name):
        yield Players(Driver(pool, count, on.deaths, _warn), name, heard)


def _warn(what: str) -> None:
    print(f"warning: {inline(what)}", file=sys.stderr)
