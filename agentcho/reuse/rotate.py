"""Reading what is reused where the message stands now, with keys turned there. Does not know: how keys are turned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from agentcho.reuse.method import Reading, Source


@dataclass(frozen=True)
class Rotate(Reading):
    """Keys are turned to the position where the message stands now; nothing else is done."""

    name = form = usual = "rotate"
    examples = ("rotate",)
    about = "keys turned to where it stands now"
    source = Source("Prompt Choreography", "2512.23049")

    @classmethod
    def parsed(cls, value: str | None) -> Self | None:
        """See `Method.parsed`; it has no parameters."""
        return cls() if value is None else None
