"""Recomputes all tokens of a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from agentcho.reuse.method import ByPlace


@dataclass(frozen=True)
class Full(ByPlace):
    """For `Repair`: all tokens of a message.

    A policy with this selection encodes the message as a `Prefill`, so that nothing of an earlier encoding is reused.
    """

    name = form = usual = "full"
    examples = ("full",)
    about = "all of them"
    keeps = False

    @classmethod
    def parsed(cls, value: str | None) -> Self | None:
        """See `Method.parsed`; it has no parameters."""
        return cls() if value is None else None

    def places(self, length: int) -> tuple[int, ...]:
        """See `ByPlace.places`."""
        return tuple(range(length))

    @property
    def tag(self) -> str:
        """See `Selection.tag`."""
        return "Full()"
