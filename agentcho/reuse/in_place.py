"""Reads reused keys and values at the positions where they were encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from agentcho.reuse.method import Reading, Source


@dataclass(frozen=True)
class InPlace(Reading):
    """Keys stay as they were made, so several messages may have the same positions."""

    name = form = usual = "in-place"
    examples = ("in-place",)
    about = "keys at the positions where they were encoded"
    source = Source("Prompt Choreography, footnote 5", "2512.23049")
    turns = False

    @classmethod
    def parsed(cls, value: str | None) -> Self | None:
        """See `Method.parsed`; it has no parameters."""
        return cls() if value is None else None
