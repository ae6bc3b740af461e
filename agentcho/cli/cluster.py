"""The options of commands that play on a cluster. Does not know: what is played."""

from __future__ import annotations

import typer

from agentcho.cli.options import Given, checked
from agentcho.cluster.config import ClusterConfig
from agentcho.cluster.players import DEATHS, Cluster


def cluster(given: Given, retries: int | None = None) -> Cluster | None:
    """The cluster that was asked for; None: none was. A usage error for options that say nothing without one."""
    asked = checked(ClusterConfig, **given)
    if asked.on is not None:
        return Cluster(asked, DEATHS if retries is None else retries)
    for name in given.typed:
        raise typer.BadParameter("says nothing without --on", param_hint=f"--{name.replace('_', '-')}")
    return None
