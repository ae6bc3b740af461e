"""Recomputes the first tokens of a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from agentcho.errors import RequestError
from agentcho.reuse.method import ByPlace
from agentcho.reuse.parameters import whole, whole_in


@dataclass(frozen=True)
class FirstK(ByPlace):
    """For `Repair`: the first tokens of a message, framing included, or all if it has fewer.

    Args:
        tokens: Number of tokens, at least 1.
    """

    tokens: int

    name = "first-k"
    attacked: ClassVar[str | None] = "first-k:16"
    form = "first-k:TOKENS"
    limits = "TOKENS is at least 1"
    examples = ("first-k:16",)
    about = "its first 16 tokens"

    @classmethod
    def parsed(cls, value: str | None) -> Self | None:
        """See `Method.parsed`."""
        tokens = whole_in(value)
        return cls(tokens) if tokens else None

    @classmethod
    def checked(cls, given: Self) -> Self:
        """See `Method.checked`."""
        tokens = whole(given.tokens, f"the tokens of {cls.__name__}")
        if tokens < 1:
            raise RequestError(f"{cls.__name__}({tokens}) repairs nothing; give at least 1")
        return cls(tokens)

    def places(self, length: int) -> tuple[int, ...]:
        """See `ByPlace.places`."""
        return tuple(range(min(length, self.tokens)))

    @property
    def tag(self) -> str:
        """See `Selection.tag`."""
        return f"First(tokens={self.tokens!r})"
