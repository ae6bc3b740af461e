"""Reads reused keys and values at the message's new position, with rotated keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from agentcho.reuse.method import Reading, Source


@dataclass(frozen=True)
class Rotate(Reading):
    """Keys are rotated to the message's new position; nothing else is done."""

    name = form = usual = "rotate"
    examples = ("rotate",)
    about = "keys rotated to the positions where they are read"
    source = Source("Prompt Choreography", "2512.23049")

    @classmethod
    def parsed(cls, value: str | None) -> Self | None:
        """See `Method.parsed`; it has no parameters."""
        return cls() if value is None else None
