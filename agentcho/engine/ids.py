"""Allocates the ids of one engine."""

from __future__ import annotations

from itertools import count

from agentcho.protocol.ids import GivenId

APART = 1 << 40
"""Number of ids per place: see `IdAllocator`."""
_engines = count()


class IdAllocator:
    """Gives out the ids of one engine, from 1. In a run of several engines each has a place, and its ids there begin at
    its place times `APART`, so that no two encodings of the run have the same number."""

    def __init__(self) -> None:
        self._engine, self.last = next(_engines), 0
        self._lasts: dict[int, int] = {}

    def go_to(self, place: int) -> None:
        """Give out the ids of this place from now on, after those that were given out there before."""
        self._lasts[self.last // APART] = self.last
        self.last = self._lasts.get(place, place * APART)

    def new(self) -> int:
        """The next id."""
        self.last += 1
        return self.at(self.last)

    def at(self, number: int) -> int:
        """The id with this number, given out already or not."""
        id = GivenId(number)
        id.engine = self._engine
        return id

    def issued(self, id: object) -> bool:
        """Whether this engine gave the id out."""
        if not isinstance(id, int) or self.foreign(id):
            return False
        place = id // APART
        last = self.last if place == self.last // APART else self._lasts.get(place, -1)
        return place * APART < id <= last

    def foreign(self, id: object) -> bool:
        """Whether another engine gave the id out."""
        return isinstance(id, GivenId) and id.engine != self._engine
