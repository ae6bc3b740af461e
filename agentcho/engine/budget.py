"""How many tokens of waiting calls go into the next forward.

Does not know: which calls wait, in what order.
"""

from __future__ import annotations

from typing import NamedTuple

DEPTH = 1024
"""A token that attends to so many others costs about twice one that attends to none, as measured on a CPU."""


class Budget(NamedTuple):
    """Tokens of one forward: at most `packed` in all, and while anybody is to be spared so much of prefills as `beside`
    tokens cost that attend to nothing, so that a long one does not hold up the next tokens of all others."""

    packed: int
    beside: int

    def room(self, fed: int, speaking: bool) -> Room:
        """What is left of a forward that feeds `fed` tokens already."""
        return Room(self.packed - fed, self.beside if speaking else None, empty=fed == 0)


class Rush:
    """Whether most of those concerned wait for their first tokens: at least two calls, and as many as speak, such as
    all that came together. It lasts until nobody waits, or the last of them would go by the small parts that spare a
    speaker. Total work is the same; what a speaker loses at once it would lose bit by bit, while others wait longer."""

    def __init__(self) -> None:
        self.on = False

    def see(self, waiting: int, speaking: int) -> None:
        """So many wait now, and so many speak."""
        self.on = waiting > 0 and (self.on or waiting >= max(2, speaking))


class Room:
    """What is left of one forward: tokens in all, and the work of prefills (None: there is no other bound)."""

    def __init__(self, total: int, work: float | None, empty: bool) -> None:
        self._total, self._work, self._empty, self._begun = total, work, empty, False

    def take(self, tokens: int, divisible: bool, depth: int = 0) -> int | None:
        """How many of a call's tokens go now, that attend to `depth` others; None: it waits. Where nothing else goes,
        an indivisible call goes whatever its size; one that waits is not overtaken."""
        if not tokens:
            return 0
        if divisible:
            return self._part(tokens, depth)
        if tokens > self._total and not self._empty:
            self._total = 0
            return None
        self._total, self._empty = self._total - tokens, False
        return tokens

    def _part(self, tokens: int, depth: int) -> int | None:
        price = 1 + depth / DEPTH
        most = min(tokens, self._total)
        if self._work is not None:
            most = min(most, max(int(self._work / price), 0 if self._begun else 1))
        if most < 1:
            return None
        self._total, self._empty, self._begun = self._total - most, False, True
        self._work = None if self._work is None else self._work - most * price
        return most
