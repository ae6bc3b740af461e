"""Decides when each game of a run begins, so that the store is well used and does not overflow."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from functools import partial

import anyio

from agentcho.choreography.quiescence import TaskTracker, TrackedTask
from agentcho.games.play.game_models import RunModels
from agentcho.protocol.value_checks import checked_int

FULL = 0.75
"""The share of the store from which no further game begins, so that games finish one after another, not all late."""
FIRST = 8
"""The maximum number of running games before one has ended, because until then the size of a game is unknown."""


class GameLimiter:
    """Lets games begin, in order.

    With `at_once`, that many games run side by side. With None the first one begins, and one more after each step, if
    less than `FULL` of the store is held, and still would be if all running games became as large as games were so far.
    A game that ends lets one begin too, and there is always one running. `most` is the largest number so far.

    A game also waits for `within`, if that is given: the limiter of all runs on the same models. That one is `eager`: a
    game begins as soon as there is room, without a step, because running games may wait for something other than steps.

    Raises `RequestError` if `at_once` is not a positive integer.
    """

    def __init__(self, tasks: TaskTracker, at_once: int | None, within: GameLimiter | None = None) -> None:
        self._within, self.eager = within, False
        self._tasks, self._at_once = tasks, None if at_once is None else checked_int(at_once, "at_once", 1)
        self._waiting: deque[tuple[anyio.Event, TrackedTask | None]] = deque()
        self._inside = self.most = self._over = self._spare = 0
        self._held = self._size = 0.0
        self._stores: dict[str | None, float] = {}

    @property
    def inside(self) -> int:
        """The number of running games."""
        return self._inside

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """A context in which a game is played. Entering it waits until the game may begin."""
        if not self._waiting and (self._inside < (self._at_once or 1) or (self.eager and self._has_room())):
            self._count(+1)
        elif self._spare and self._has_room():  # a running game began to wait before this one came
            self._spare -= 1
            self._count(+1)
        else:
            await self._wait()
        try:
            async with nullcontext() if self._within is None else self._within.slot():
                yield
        finally:
            self._count(-1)
            self._over += 1
            self._next()

    def follow(self, models: RunModels) -> None:
        """Let games begin as the stores of these models' engines have room."""
        for choreographer in models.choreographers:
            choreographer.stepped = partial(self.stepped, engine=choreographer.name)

    def stepped(self, held: float, engine: str | None = None) -> None:
        """Note the share of an engine's store that is held after a step. The fullest store counts."""
        self._stores[engine] = held
        self._held = max(self._stores.values())
        self._size = max(self._size, self._held / max(1, self._inside))
        if self._at_once is None:
            self._next()

    def rests(self) -> None:
        """Note that a running game waits for a person. Steps may be rare, and one more game may begin meanwhile."""
        if self._at_once is None:
            self._spare += not self._waiting
            self._next()

    async def _wait(self) -> None:
        place = anyio.Event(), self._tasks.current()
        self._waiting.append(place)
        try:
            await place[0].wait()
        except BaseException:
            if place in self._waiting:
                self._waiting.remove(place)
            else:  # it was let in, and cancelled before it continued
                self._count(-1)
                self._next()
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
