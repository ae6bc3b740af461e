"""The commands of a group of the command line, those of the lab too, as help lists them."""

from __future__ import annotations

from typing import Any


def commands(group: Any) -> dict[str, Any]:
    """By name; nothing of what is no group."""
    if not hasattr(group, "list_commands"):
        return {}
    context = group.make_context("agentcho", [], resilient_parsing=True)
    return {name: group.get_command(context, name) for name in group.list_commands(context)}
