"""The commands of a CLI group as help lists them, including those of the lab."""

from __future__ import annotations

from typing import Any


def commands(group: Any) -> dict[str, Any]:
    """The commands by name; empty if `group` is not a group."""
    if not hasattr(group, "list_commands"):
        return {}
    context = group.make_context("agentcho", [], resilient_parsing=True)
    return {name: group.get_command(context, name) for name in group.list_commands(context)}
