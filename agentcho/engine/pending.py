"""Admitted calls that wait or run, and what each reads and holds until it is done.

Does not know: when a call runs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from agentcho.engine.encoding import Context, Piece, Segment, Storage
from agentcho.engine.follower import Follower
from agentcho.engine.row import Row
from agentcho.request import Encoded, EncodingId, Guard


@dataclass(eq=False)
class PendingPrefill:
    """An admitted prefill. Its storage may be shared, and may be ready already."""

    id: EncodingId
    context: Context
    storage: Storage
    words: Encoded
    guard: Guard | None

    def segment(self, most: int) -> Segment:
        """The next of its tokens over its context, at most so many."""
        done, start = self.storage.written, self.context.start
        ids = self.words.tokens[done : done + most]
        return Segment(ids, start + done, self.context.pieces, storage=self.storage, done=done)


@dataclass(eq=False)
class PendingRepair(PendingPrefill):
    """An admitted repair. `base` is what it keeps, where it stands now; `judged` the context over which its tokens are
    compared with the base's, where they are chosen by that; `places` its chosen tokens, once they are known."""

    base: Piece
    count: int
    judged: Context | None
    places: Sequence[int]

    def segment(self, most: int) -> Segment:
        """Its chosen tokens among those of the base, all at once."""
        return Segment(
            self._ids(), self.context.start, self.context.pieces, storage=self.storage, base=self.base,
            places=self.places,
        )  # fmt: skip

    def choose(self, places: Sequence[int]) -> None:
        """Say which tokens it encodes, before the forward it is planned in."""
        assert self.storage.segment is not None
        self.places = self.storage.segment.places = places
        self.storage.segment.ids = self._ids()

    def _ids(self) -> list[int]:
        return [self.words.tokens[place] for place in self.places]


@dataclass(eq=False)
class PendingDecode:
    """An admitted decode or its shadow, with the pages reserved for what it may become."""

    row: Row | Follower
    reserved: int

    @property
    def id(self) -> EncodingId:
        """The call's id."""
        return self.row.id

    @property
    def context(self) -> Context:
        """What it attends to."""
        return self.row.context

    @property
    def guard(self) -> Guard | None:
        """Who is asked before that is gathered."""
        return self.row.call.guard


Pending = PendingPrefill | PendingDecode


def gathered(call: Pending) -> tuple[Piece, ...]:
    """All stored keys that a call reads, and holds until it is done: its context; of a repair its base too, and what
    its tokens are judged over."""
    if not isinstance(call, PendingRepair):
        return call.context.pieces
    judged = () if call.judged is None else call.judged.pieces
    return (*call.context.pieces, call.base, *judged)


def size(call: Pending) -> int:
    """Tokens that it has to feed next: of a prefill all that is left."""
    if isinstance(call, PendingDecode):
        return len(call.row.feed)
    if call.storage.attendable:
        return 0
    return call.count if isinstance(call, PendingRepair) else len(call.words.tokens) - call.storage.written


def due(call: Pending) -> bool:
    """Whether it may go into the forward that is being planned, where what it attends to is there."""
    if isinstance(call, PendingDecode):
        return call.row.due
    return call.storage.attendable or call.storage.segment is None  # else another call encodes a part of the same


def divisible(call: Pending) -> bool:
    """Whether it can be encoded in parts: a prefill of known text."""
    return isinstance(call, PendingPrefill) and not isinstance(call, PendingRepair)


def attendable(call: Pending) -> bool:
    """Whether all that a call attends to is stored, or completed by the forward that is being planned."""
    if isinstance(call, PendingRepair):
        judged = () if call.judged is None else call.judged.pieces
        if not all(piece.storage.ready for piece in (call.base, *judged)):
            return False
    return all(piece.storage.attendable for piece in call.context.pieces)


def promised(call: Pending, making: Collection[Storage]) -> bool:
    """Whether what a call lacks is among what waiting calls make."""
    return all(piece.storage.attendable or piece.storage in making for piece in gathered(call))
