"""What a sample is: one agent's view of a workflow, message by message. Knows no wording and no tokens."""

from __future__ import annotations

from typing import NamedTuple


class Turn(NamedTuple):
    """One message as an agent reads it; `weight` is what a token of its text or closing counts in training."""

    role: str
    name: str | None
    header: str
    text: str
    weight: float


class Sample(NamedTuple):
    """One agent's view of one workflow; `facts` says what was drawn, and is never shown to a model."""

    kind: str
    viewer: str
    turns: tuple[Turn, ...]
    facts: dict[str, str]


def prompt(role: str, text: str) -> Turn:
    """A message of the scenario, learned a little."""
    return Turn(role, None, "", text, 0.1)


def own(name: str, text: str, header: str = "", weight: float = 1.0) -> Turn:
    """What the viewing agent says."""
    return Turn("assistant", name.lower(), header, text, weight)


def heard(name: str, text: str, header: str = "", weight: float = 0.2) -> Turn:
    """What another agent says, learned a little."""
    return Turn("assistant", name.lower(), header, text, weight)
