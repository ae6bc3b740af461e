"""Reading what is reused at the positions where it was encoded. Does not know: positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from agentcho.reuse.method import Reading, Source


@dataclass(frozen=True)
class InPlace(Reading):
    """Keys stay as they were made, so that messages may stand at the same positions."""

    name = form = usual = "in-place"
    examples = ("in-place",)
    about = "no key turned"
    source = Source("Prompt Choreography, footnote 5", "2512.23049")
    turns = False

    @classmethod
    def parsed(cls, value: str | None) -> Self | None:
        """See `Method.parsed`; it has no parameters."""
        return cls() if value is None else None
