"""Compact lists for a page: numbers as ranges, and contexts as continuations of earlier ones.

The contexts of a talk of n messages have up to n² pieces, nearly all of which are in the preceding context too. The
page's `data.js` reads this format.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Json = dict[str, Any]
"""A JSON object in the data of a page."""
ContextPiece = tuple[int, int, int]
"""The id of an encoding, its offset and its length."""


class ContextGrowth(NamedTuple):
    """A context: the first `kept` pieces of that of encoding `base` (-1 for none), followed by `more`."""

    base: int
    kept: int
    more: tuple[ContextPiece, ...]

    def flat(self, numbers: Mapping[int, int]) -> list[int]:
        """One list of numbers, with each encoding's number for its id (-1 if it has none)."""
        more = ((numbers.get(id, -1), offset, length) for id, offset, length in self.more)
        return [self.base, self.kept, *(number for piece in more for number in piece)]


class Contexts:
    """Contexts that are likely to begin like an earlier one, grouped by a key from the caller."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[int, Sequence[ContextPiece]]] = {}

    def grown(self, number: int, key: Hashable, pieces: Sequence[ContextPiece]) -> ContextGrowth:
        """The context of encoding `number`, relative to that of the last one with the same key."""
        base, before = self._last.get(key, (-1, ()))
        kept = _equal(before, pieces)
        self._last[key] = number, pieces
        return ContextGrowth(base if kept else -1, kept, tuple(pieces[kept:]))


def _equal(one: Sequence[ContextPiece], other: Sequence[ContextPiece]) -> int:
    """The number of leading pieces that two contexts share; the frequent case that all match is tried first."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    return next(n for n in range(most) if one[n] != other[n])


def runs(numbers: Iterable[int]) -> list[int]:
    """Ascending numbers as pairs of the first and the last of each run: 3 4 5 9 is 3 5 9 9."""
    found: list[int] = []
    for number in sorted(numbers):
        if found and number == found[-1] + 1:
            found[-1] = number
        else:
            found += [number, number]
    return found
