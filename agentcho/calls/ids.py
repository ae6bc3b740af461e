"""The ids that an engine gives out: small numbers that also know whose they are.

So one engine does not take another's for its own. Does not know: what is named.
"""

from __future__ import annotations

from itertools import count

_engines = count()


class Given(int):
    """A number that one engine gave out. As a number it is like any other: where somebody has written it to a file and
    reads it back, nothing tells whose it was."""

    engine: int = -1


class Ids:
    """Those of one engine, from 1."""

    def __init__(self) -> None:
        self._engine, self.last = next(_engines), 0

    def new(self) -> int:
        """The next one."""
        self.last += 1
        return self.at(self.last)

    def at(self, number: int) -> int:
        """The one of that number, given already or not."""
        id = Given(number)
        id.engine = self._engine
        return id

    def gave(self, id: object) -> bool:
        """Whether it was given out here."""
        return isinstance(id, int) and 0 < id <= self.last and not self.foreign(id)

    def foreign(self, id: object) -> bool:
        """Whether another engine gave it out."""
        return isinstance(id, Given) and id.engine != self._engine


def akin(id: object, other: object) -> bool:
    """Whether one engine may have given out both."""
    return not (isinstance(id, Given) and isinstance(other, Given)) or id.engine == other.engine
