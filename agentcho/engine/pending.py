"""Admitted calls that wait or run, and what each reads and holds until it is done.

Does not know: when a call runs.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

from agentcho.calls.call import Encoded, EncodingId, Guard
from agentcho.calls.checks import asked
from agentcho.engine.encoding import Context, Piece, Segment, Storage
from agentcho.engine.follower import Follower
from agentcho.engine.lanes import Lane
from agentcho.engine.row import Row


@dataclass(eq=False)
class PendingPrefill:
    """An admitted prefill. Its storage may be shared, and may be ready already; of all calls that want it the one that
    `started` it encodes it, perhaps in parts: then `lane` keeps what these attend to."""

    id: EncodingId
    context: Context
    storage: Storage
    words: Encoded
    guard: Guard | None
    started: bool = field(default=False, init=False)
    lane: Lane | None = field(default=None, init=False)

    def encode(self, most: int) -> Segment:
        """Its next segment, which completes its storage or goes on with it. From now on the storage is made over this
        call's context, and made again over that: an equal call may read other storages of the same keys, which nobody
        has made."""
        recipe = self.storage.recipe
        assert recipe is not None
        if not self.started:
            base = self.base if isinstance(self, PendingRepair) else None
            self.storage.recipe, self.started = recipe._replace(context=self.context, base=base), True
        self.storage.segment = self.segment(most)
        return self.storage.segment

    def segment(self, most: int) -> Segment:
        """The next of its tokens over its context, at most so many."""
        done, start = self.storage.written, self.context.start
        ids = self.words.tokens[done : done + most]
        pieces = () if done else self.context.pieces
        return Segment(ids, start + done, pieces, lane=self.lane, storage=self.storage, done=done)


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
        assert self.storage.recipe is not None
        self.places = self.storage.segment.places = places
        self.storage.segment.ids = self._ids()
        self.storage.recipe = self.storage.recipe._replace(places=tuple(places))

    def _ids(self) -> list[int]:
        return [self.words.tokens[place] for place in self.places]


@dataclass(eq=False)
class PendingShadow(PendingPrefill):
    """A shadow whose leader ended before it fed anything: a prefill of known tokens, whose id counts as finished. Its
    own storage is held by who may ask for it, and not by itself. It is encoded at once, as a shadow's last tokens are.
    """


@dataclass(eq=False)
class PendingDecode:
    """An admitted decode or its shadow. It may become `longest` tokens long, and has pages `reserved` for that while it
    runs. `feeds` are the tokens that it fed so far, forward by forward."""

    row: Row | Follower
    longest: int
    reserved: int = 0
    feeds: list[int] = field(default_factory=list)

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

    @property
    def lane(self) -> Lane:
        """Its own, once it has begun."""
        assert self.row.lane is not None
        return self.row.lane

    @property
    def before(self) -> int:
        """Tokens of its lane before its own."""
        return 0 if self.lane.shared else self.context.length

    @property
    def width(self) -> int:
        """Tokens that its lane has to have room for in the next forward."""
        return self.before + self.row.fed + len(self.row.feed)

    def segment(self) -> Segment:
        """What it feeds next. Of all rows over a shared context the first to begin gathers it."""
        row, shared = self.row, self.lane.shared
        pieces = () if row.fed or (shared is not None and shared.claimed) else self.context.pieces
        if shared is not None:
            shared.claimed = True
        return Segment(row.feed, row.position, pieces, lane=self.lane, wanted=row.wanted)


Pending = PendingPrefill | PendingDecode


def gathered(call: Pending) -> tuple[Piece, ...]:
    """All stored keys that a call reads, and holds until it is done: its context; of a repair its base too, and what
    its tokens are judged over."""
    if not isinstance(call, PendingRepair):
        return call.context.pieces
    judged = () if call.judged is None else call.judged.pieces
    return (*call.context.pieces, call.base, *judged)


def held(call: Pending) -> tuple[Storage, ...]:
    """All storages that a call counts as a holder of, as often as it names them: what it reads, and what it makes
    for its id."""
    own = (call.storage,) if isinstance(call, PendingPrefill) and not isinstance(call, PendingShadow) else ()
    return (*(piece.storage for piece in gathered(call)), *own)


def ask(call: Pending) -> None:
    """Ask its guard about all that it gathers: `LeakageError` where that refuses, `CallbackFailed` where it fails."""
    if call.guard is not None:
        asked(call.guard, call.id, [piece.id for piece in gathered(call) if piece.id is not None])


def begun(call: Pending) -> bool:
    """Whether a prefill has all the room it needs: it goes on with what it started, or its keys are there, or come out
    of the forward that is being planned."""
    if not isinstance(call, PendingPrefill) or call.storage.dropped:
        return False
    return call.started or call.storage.attendable


def needed(call: Pending) -> tuple[Storage, ...]:
    """What must be in the store for it to begin: all that it reads; of a prefill that was made before, that alone."""
    if isinstance(call, PendingPrefill) and call.storage.ready:
        return (call.storage,)
    return tuple(piece.storage for piece in gathered(call))


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
    return call.started or call.storage.attendable or call.storage.pages is None  # else another encodes it in parts


def depth(call: Pending) -> int:
    """How many tokens its next one attends to."""
    return call.context.length + (call.storage.written if isinstance(call, PendingPrefill) else 0)


def divisible(call: Pending) -> TypeGuard[PendingPrefill]:
    """Whether it can be encoded in parts: a prefill of known text."""
    return isinstance(call, PendingPrefill) and not isinstance(call, PendingRepair | PendingShadow)


def longest(call: Pending) -> int:
    """How many tokens its own encoding may yet add to the store."""
    if isinstance(call, PendingDecode):
        return call.longest
    return 0 if call.storage.ready else call.storage.length


def attendable(call: Pending) -> bool:
    """Whether all that a call attends to is stored, or completed by the forward that is being planned."""
    if isinstance(call, PendingRepair):
        judged = () if call.judged is None else call.judged.pieces
        if not all(piece.storage.ready for piece in (call.base, *judged)):
            return False
    return all(piece.storage.attendable for piece in call.context.pieces)


def promised(call: Pending, *making: Container[Storage]) -> bool:
    """Whether all that a call lacks is in one of these, which calls are going to make."""
    lacked = (piece.storage for piece in gathered(call) if not piece.storage.attendable)
    return all(any(storage in those for those in making) for storage in lacked)
