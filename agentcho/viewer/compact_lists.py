"""Lists of a page in few letters: numbers in runs, and contexts by how they go on from an earlier one.

The contexts of a talk of n messages have up to n² pieces, and nearly all of each stands in the one before it. The
page's `data.js` reads what is written here. Does not know: what the numbers stand for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Json = dict[str, Any]
"""An object of the data of a page."""
ContextPiece = tuple[int, int, int]
"""Id of an encoding, offset, length."""


class ContextGrowth(NamedTuple):
    """A context: the first `kept` pieces of that of encoding `base` (-1: of none), and then `more`."""

    base: int
    kept: int
    more: tuple[ContextPiece, ...]

    def flat(self, numbers: Mapping[int, int]) -> list[int]:
        """It as one list of numbers, with the number of each encoding for its id (-1: it has none)."""
        more = ((numbers.get(id, -1), offset, length) for id, offset, length in self.more)
        return [self.base, self.kept, *(number for piece in more for number in piece)]


class Contexts:
    """Contexts that are likely to begin like another, by a key of the caller's."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[int, Sequence[ContextPiece]]] = {}

    def grown(self, number: int, key: Hashable, pieces: Sequence[ContextPiece]) -> ContextGrowth:
        """The context of encoding `number`, by that of the last one of the same key."""
        base, before = self._last.get(key, (-1, ()))
        kept = _equal(before, pieces)
        self._last[key] = number, pieces
        return ContextGrowth(base if kept else -1, kept, tuple(pieces[kept:]))


def _equal(one: Sequence[ContextPiece], other: Sequence[ContextPiece]) -> int:
    """How many pieces two contexts begin with alike; whether they are nearly all is asked first."""
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
