"""The format of a sample: one agent's view of a workflow, message by message."""

from __future__ import annotations

from typing import NamedTuple


class Turn(NamedTuple):
    """One message as an agent reads it. `weight` is the loss weight of each token of its text and closing."""

    role: str
    name: str | None
    header: str
    text: str
    weight: float


class Sample(NamedTuple):
    """One agent's view of one workflow. `facts` are the values that were drawn; no model reads them."""

    kind: str
    viewer: str
    turns: tuple[Turn, ...]
    facts: dict[str, str]


def prompt(role: str, text: str) -> Turn:
    """A message of the scenario, with a small weight in training."""
    return Turn(role, None, "", text, 0.1)


def own(name: str, text: str, header: str = "", weight: float = 1.0) -> Turn:
    """A message of the viewing agent."""
    return Turn("assistant", name.lower(), header, text, weight)


def heard(name: str, text: str, header: str = "", weight: float = 0.2) -> Turn:
    """A message of another agent, with a small weight in training."""
    return Turn("assistant", name.lower(), header, text, weight)
