"""The options of commands that play on a cluster."""

from __future__ import annotations

import typer

from agentcho.cli.options import GivenOptions, checked
from agentcho.integrations.ray.config import ClusterConfig
from agentcho.integrations.ray.players import DEATHS, Cluster


def cluster(given: GivenOptions, retries: int | None = None) -> Cluster | None:
    """Return the requested cluster, or None. Raises a usage error for options without effect."""
    asked = checked(ClusterConfig, **given)
    if asked.on is not None:
        return Cluster(asked, DEATHS if retries is None else retries)
    for name in given.typed:
        raise typer.BadParameter(
            "has no effect without --on; give --on too, or leave it out", param_hint=f"--{name.replace('_', '-')}"
        )
    return None
