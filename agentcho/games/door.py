"""When the next game of a run begins: so many side by side, or as many as the store has room for.

Does not know: what a game is, engines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from agentcho.calls.values import whole
from agentcho.choreography.quiescence import TrackedTask, Turns

FULL = 0.75
"""With this share of the store held nobody more is let in, so that games finish one after another, and not all late."""
FIRST = 8
"""So many are let in at most before one has ended, for until then nobody knows how large a game becomes."""


class Door:
    """Lets games in, in order: `at_once` of them side by side; None: the first, and after each step one more while less
    than `FULL` of the store is held, and would be if all inside became as large as games were so far. Whoever ends lets
    one in too, and there is always one inside. `most` is how many were inside together. `RequestError`: `at_once` is no
    such number."""

    def __init__(self, turns: Turns, at_once: int | None) -> None:
        self._turns, self._at_once = turns, None if at_once is None else whole(at_once, "at_once", 1)
        self._waiting: deque[tuple[anyio.Event, TrackedTask | None]] = deque()
        self._inside = self.most = self._over = 0
        self._held = self._size = 0.0

    @asynccontextmanager
    async def inside(self) -> AsyncIterator[None]:
        """A context in which a game is played; entering it waits for its turn."""
        if self._inside < (self._at_once or 1) and not self._waiting:
            self._count(+1)
        else:
            await self._wait()
        try:
            yield
        finally:
            self._count(-1)
            self._over += 1
            self._next()

    def stepped(self, held: float) -> None:
        """A step was made; this share of the store is held after it."""
        self._held, self._size = held, max(self._size, held / max(1, self._inside))
        if self._at_once is None:
            self._next()

    async def _wait(self) -> None:
        place = anyio.Event(), self._turns.current()
        self._waiting.append(place)
        try:
            await place[0].wait()
        except BaseException:
            if place in self._waiting:
                self._waiting.remove(place)
            else:  # let in, and cancelled before it got there
                self._count(-1)
            raise

    def _next(self) -> None:
        if self._waiting and (self._has_room() or not self._inside):
            event, turn = self._waiting.popleft()
            self._count(+1)
            if turn is not None:
                turn.wake()
            event.set()

    def _has_room(self) -> bool:
        if self._at_once is not None:
            return self._inside < self._at_once
        fits = (self._inside + 1) * self._size <= FULL if self._over else self._inside < FIRST
        return self._held < FULL and fits

    def _count(self, change: int) -> None:
        self._inside += change
        self.most = max(self.most, self._inside)
