"""Rounds of a game: what is out, in order, and simultaneous rounds in which moves wait for each other.

Where several acts are under way whose messages will come out in one place, which of them ends first decides the order:
that is noted, as `raced`. Each move of a round has a place of its own, so moves do not race.

Does not know: audiences, encodings, who may read what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from agentcho.choreography.quiescence import Turns
from agentcho.flow.taint import TaintTracker
from agentcho.flow.views import Line, Said
from agentcho.message import Metadata


@dataclass(eq=False)
class Seat:
    """A player's place in a simultaneous round: what was out before it, its own moves so far, what it heard."""

    before: Said
    moves: Line = field(default_factory=Line)
    heard: set[str] = field(default_factory=set)


class Rounds:
    """Messages in the order they came out. A task in a round sees what was out before, and its own moves."""

    def __init__(self, turns: Turns, taint: TaintTracker) -> None:
        self._turns, self._taint = turns, taint
        self._out = Line()
        self._seat: ContextVar[Seat | None] = ContextVar("seat", default=None)
        self._under_way: Counter[Seat | None] = Counter()
        self.raced = False

    @property
    def seat(self) -> Seat | None:
        """The running task's place in a round, to publish from another task."""
        return self._seat.get()

    def visible(self) -> Said:
        """What the running task can see."""
        seat = self.seat
        return Said(self._out) if seat is None else Said(seat.moves, after=seat.before)

    def publish(self, message: Metadata, seat: Seat | None) -> None:
        """Let a message out, or keep it with the moves of a round until that closes."""
        (self._out if seat is None else seat.moves).add(message)

    @contextmanager
    def act(self, seat: Seat | None) -> Iterator[None]:
        """Around what waits for the engine and then lets a message out there. Where two overlap, which of them ends
        first decides the order of what they let out."""
        self._under_way[seat] += 1
        try:
            yield
        finally:
            self._under_way[seat] -= 1
            self.raced |= self._under_way[seat] > 0

    async def together(self, *moves: Coroutine[Any, Any, Any]) -> list[Any]:
        """Run moves side by side; all come out at the end, move by move in the order given, errors or not."""
        before, outer = self.visible(), self.seat
        seats = [Seat(before) for _ in moves]
        seated = [self._seated(seat, move) for seat, move in zip(seats, moves, strict=True)]
        try:
            with self.act(outer):
                return await self._turns.together(*seated)
        finally:
            for move in moves:
                move.close()
            self._taint.join([seat.heard for seat in seats])
            for message in (m for seat in seats for m in seat.moves.messages):
                self.publish(message, outer)

    async def _seated(self, seat: Seat, move: Coroutine[Any, Any, Any]) -> Any:
        self._seat.set(seat)
        seat.heard = self._taint.part()
        return await move
