"""Recomputes both ends of a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from agentcho.errors import RequestError
from agentcho.reuse.method import ByPlace
from agentcho.reuse.parameters import whole, whole_in


@dataclass(frozen=True)
class Ends(ByPlace):
    """For `Repair`: the first and the last tokens of a message, framing included, or all if it has no more.

    Later tokens attend most to the beginning of a message and, for its conclusion, to its end.

    Args:
        first: Number of tokens at the beginning, from 0.
        last: Number of tokens at the end, from 0. One of the two is above 0.
    """

    first: int
    last: int

    name = "ends"
    form = "ends:FIRST,LAST"
    limits = "FIRST and LAST are from 0, and not both 0"
    examples = ("ends:8,8",)
    about = "its first 8 tokens and its last 8"

    @classmethod
    def parsed(cls, value: str | None) -> Self | None:
        """See `Method.parsed`."""
        first, last = (whole_in(part) for part in (value or "").partition(",")[::2])
        return cls(first, last) if first is not None and last is not None and first + last else None

    @classmethod
    def checked(cls, given: Self) -> Self:
        """See `Method.checked`."""
        ends = cls(whole(given.first, "the first tokens of Ends"), whole(given.last, "the last tokens of Ends"))
        if min(ends.first, ends.last) < 0 or max(ends.first, ends.last) < 1:
            raise RequestError(f"{ends} repairs nothing; give two numbers of 0 or more, at least one above 0")
        return ends

    def places(self, length: int) -> tuple[int, ...]:
        """See `ByPlace.places`."""
        return tuple(i for i in range(length) if i < self.first or i >= length - self.last)

    @property
    def tag(self) -> str:
        """See `Selection.tag`."""
        return f"Ends(first={self.first!r}, last={self.last!r})"
