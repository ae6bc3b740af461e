"""The state of one admitted call: the encodings it reads, the encoding it makes, the tokens it feeds next.

Independent of scheduling. `generation` decides what a decode generates.
"""

from __future__ import annotations

from collections.abc import Container
from collections.abc import Sequence as Listed
from dataclasses import dataclass, field
from enum import Enum

from agentcho.engine.cache import SharedPrefix
from agentcho.engine.call_layout import (
    CallContext,
    ContextPiece,
    KVEntry,
    Segment,
    Slot,
    WeightedAnchor,
    both,
    narrowing,
)
from agentcho.engine.generation import Generation
from agentcho.engine.speculation import NONE, DraftTokens
from agentcho.message import Words
from agentcho.protocol.call import Call, EncodingId, Receipt, Repair
from agentcho.protocol.call_validation import ask_guard

STRIDE = 32
"""Number of tokens that a shadow feeds at a time, so that it reads its context once for all of them."""
SHORT = 48
"""The shadow of a message with at most this many tokens, framing and header included, does not feed while the message
is generated."""


class Status(Enum):
    """WAITING: in the queue, perhaps partly encoded. RUNNING: a decode or a shadow that has begun. DEFERRED: a shadow
    whose id is finished, and which is encoded when a call first reads it. FINISHED: done, failed or dropped."""

    WAITING = "waiting"
    RUNNING = "running"
    DEFERRED = "deferred"
    FINISHED = "finished"


@dataclass
class Reuse:
    """What a repair reuses of a message. `base`: its encoding, at its new place. `count`: number of recomputed tokens.
    `places`: their indices, once known. `judged`: the context over which they are chosen by how far their values
    deviate from the base's (None if they are not chosen that way). `anchors`: the anchors whose offsets are added to
    the base, without recomputed tokens."""

    base: ContextPiece
    count: int
    judged: CallContext | None
    places: Listed[int]
    anchors: tuple[WeightedAnchor, ...] = ()

    @property
    def compared(self) -> tuple[ContextPiece, ...]:
        """All pieces that must be stored before its tokens are chosen, or its entry is made from anchors."""
        judged = () if self.judged is None else self.judged.pieces
        return (self.base, *judged, *both(self.anchors))


@dataclass(eq=False)
class Sequence:
    """One admitted call.

    - A prefill, a repair and a deferred shadow encode known `words` into an `entry`. Other calls may share the entry,
      and it may be ready already. Of all calls that need it, the one that `started` it encodes it, perhaps in parts;
      `slot` then keeps the context that the parts attend to. The first `copied` tokens are copied from an earlier state
      of the words (`prefix`) at the start.
    - A decode has a `generation`. Its shadow (`leader` is the decode) feeds the same tokens over another context, after
      they were accepted. Both can become `longest` tokens long, have `reserved` pages while they run, and a `slot`, in
      which their own tokens come after `before` others.
    - `everyones`: its guard has found its encoding to be public. `encoded`: its entry was encoded for it.
    - `fed`: number of tokens fed so far. `feeds`: the same for each forward. `portion`: number of tokens that a shadow
      feeds in the next forward.
    """

    id: EncodingId
    call: Call
    context: CallContext
    longest: int
    words: Words | None = None
    entry: KVEntry | None = None
    repair: Reuse | None = None
    prefix: SharedPrefix | None = None
    generation: Generation | None = None
    leader: Sequence | None = None
    status: Status = Status.WAITING
    slot: Slot | None = None
    started: bool = False
    everyones: bool = False
    encoded: bool = False
    copied: int = 0
    reserved: int = 0
    before: int = 0
    fed: int = 0
    portion: int = 0
    feeds: list[int] = field(default_factory=list)

    # -- entries that it reads, holds and needs ----------------------------------------------------------

    @property
    def own(self) -> KVEntry:
        """The entry that its known words are encoded into."""
        assert self.entry is not None
        return self.entry

    @property
    def speech(self) -> Generation:
        """The generation of a decode; for a shadow that of its leader."""
        assert self.generation is not None
        return self.generation

    @property
    def reads(self) -> tuple[ContextPiece, ...]:
        """All pieces that it reads, and holds until it is done: its context; for a repair also its base, the context
        that its tokens are chosen over, and its anchors."""
        if self.repair is None:
            return self.context.pieces
        return (*self.context.pieces, *self.repair.compared)

    @property
    def receipt(self) -> Receipt:
        """The receipt of known words."""
        receipt = self.context.receipt
        if self.repair is None:
            return receipt
        anchors = tuple(piece.id for piece in both(self.repair.anchors) if piece.id is not None)
        return receipt._replace(base=self.repair.base.id, anchors=anchors)

    @property
    def holds(self) -> tuple[KVEntry, ...]:
        """All entries that it is counted as a holder of, with repeats: those that it uses, and the one that it makes
        for its id. The entry of a deferred shadow is held by its id, and by the calls that read it."""
        return self.uses if self.entry is None or self.status is Status.DEFERRED else (*self.uses, self.entry)

    @property
    def uses(self) -> tuple[KVEntry, ...]:
        """All entries that it holds until it is done: those that it reads, and the one that it copies a prefix from."""
        read = tuple(piece.entry for piece in self.reads)
        return read if self.prefix is None else (*read, self.prefix.entry)

    @property
    def lacks(self) -> list[KVEntry]:
        """The entries that it reads and that will not be computed by the end of the forward that is being planned."""
        return [piece.entry for piece in self.reads if not piece.entry.attendable]

    @property
    def needs(self) -> tuple[KVEntry, ...]:
        """The entries that must be in the store before it begins: all that it reads, or, if its own entry is ready,
        only that."""
        if self.entry is not None and self.entry.ready:
            return (self.entry,)
        return tuple(piece.entry for piece in self.reads)

    @property
    def reads_stored(self) -> bool:
        """Whether it reads its context from the store with every token, and not from its slot."""
        return self.slot is not None and bool(self.slot.stored)

    @property
    def takes(self) -> SharedPrefix | None:
        """The prefix to be copied into its entry when it begins. None if nothing is copied."""
        return self.prefix if self.copied else None

    @property
    def grows(self) -> int:
        """The number of tokens that its own encoding may still add to the store."""
        if self.entry is None:
            return self.longest
        return 0 if self.entry.ready else self.entry.length

    def ask(self) -> None:
        """Ask its guard about all that it reads. Raises `LeakageError` if the guard refuses, and `CallbackFailed` if
        the guard itself fails."""
        if self.call.guard is not None:
            over = [piece.id for piece in self.reads if piece.id is not None]
            self.everyones = ask_guard(self.call.guard, self.id, over)

    @property
    def attendable(self) -> bool:
        """Whether all that it attends to is computed, or will be by the end of the forward that is being planned. The
        pieces that a repair compares must be ready before."""
        if self.repair is not None and not all(piece.entry.ready for piece in self.repair.compared):
            return False
        return all(piece.entry.attendable for piece in self.context.pieces)

    def promised(self, *making: Container[KVEntry]) -> bool:
        """Whether every entry that it lacks is in one of `making`, the entries that waiting or deferred calls will
        make."""
        return all(any(entry in those for those in making) for entry in self.lacks)

    # -- the tokens that it feeds next -------------------------------------------------------------------

    @property
    def placed(self) -> bool:
        """Whether its known words have all the room that they need: it has started, or its entry is computed or will
        be by the end of the forward that is being planned."""
        if self.entry is None or self.entry.dropped:
            return False
        return self.started or self.entry.attendable

    @property
    def due(self) -> bool:
        """Whether it may go into the forward that is being planned, apart from the state of its context."""
        if self.entry is None:
            return self.leader is None or self.portion > 0
        return self.started or self.entry.attendable or self.entry.pages is None  # else another call encodes it

    @property
    def divisible(self) -> bool:
        """Whether it can be encoded in parts: only a prefill can. A deferred shadow is encoded at once, as the last
        tokens of any shadow are."""
        return self.entry is not None and self.repair is None and self.status is not Status.DEFERRED

    @property
    def feed(self) -> tuple[int, ...]:
        """The ids of a decode or a shadow that the next forward takes."""
        if self.leader is None:
            return self.speech.feed
        return self.speech.script[self.fed : self.fed + self.portion]

    @property
    def remaining(self) -> int:
        """The number of tokens that it has to feed next; for known words, all that are left."""
        if self.entry is None:
            return len(self.feed)
        if self.entry.attendable:
            return 0
        done = max(self.entry.written, self.copied)
        return self.repair.count if self.repair is not None else self.entry.length - done

    @property
    def depth(self) -> int:
        """The number of tokens that its next token attends to."""
        return self.context.length + (0 if self.entry is None else self.entry.written)

    @property
    def lacking(self) -> int:
        """The number of its leader's tokens that a shadow has not fed."""
        return len(self.speech.script) - self.fed

    @property
    def late(self) -> bool:
        """Whether it is a shadow that has fed nothing, and its leader has ended with a short message. Such a shadow is
        not encoded before a call reads it; it is so short that the call does not wait long."""
        ended = self.entry is None and self.leader is not None and self.speech.stopped is not None
        return ended and not self.fed and self.lacking <= SHORT

    def next_segment(self) -> Segment:
        """The next segment of a decode or a shadow. The first row over a shared run that begins gathers the run."""
        assert self.slot is not None
        generation = self.speech
        if self.leader is None:
            feed, wanted = generation.feed + generation.guessed, generation.wanted
        else:
            feed, wanted = self.feed, ()
        start, adapter = self.context.start + self.fed, self.context.adapter
        if self.fed:
            row = generation.stopped is None and self.leader is None
            return Segment(feed, start, slot=self.slot, wanted=wanted, row=row, adapter=adapter)
        claims = [reading.run for reading in self.slot.readings if not reading.run.claimed]
        for run in claims:
            run.claimed = True
        pieces, parallel = self.slot.pieces, self.context.parallel
        return Segment(feed, start, pieces, self.slot, wanted=wanted, adapter=adapter, claims=claims, parallel=parallel)

    def advance(self, fed: int) -> None:
        """Note that `fed` tokens of a decode or a shadow went through a forward."""
        self.fed += fed
        self.feeds.append(fed)
        self.portion = 0
        if self.leader is None:
            self.speech.feed = ()

    def retract(self, tokens: int) -> None:
        """Note that the last `tokens` fed tokens are not part of its message."""
        self.fed -= tokens
        self.feeds[-1] -= tokens

    def guess(self) -> DraftTokens:
        """Draft the next tokens of a decode. Nothing is drafted before its first token, or in the deterministic
        profile."""
        if self.leader is not None or not self.fed or self.slot is None or self.slot.alone:
            return NONE
        return self.speech.guess()

    def starved(self, fed: Container[Sequence]) -> bool:
        """Whether a forward did not complete what was begun for it; `fed` are the rows of that forward."""
        if self.entry is None:
            return self.status is Status.RUNNING and self not in fed
        return not self.entry.ready

    # -- known words -------------------------------------------------------------------------------------

    def encode(self, most: int) -> Segment:
        """The next segment of known words, of at most `most` tokens. It completes the entry, or continues it.

        The first segment fixes the recipe of the entry to this call's own context: an equal call may read other entries
        with the same keys, and those may never have been computed.
        """
        entry = self.own
        if not self.started:
            self.start()
            self.encoded, entry.written = True, self.copied
        entry.segment = self._repaired() if self.repair is not None else self._part(most)
        return entry.segment

    def start(self) -> None:
        """Note that its entry is now being made, and over which context: see `encode`."""
        base, anchors = (None, ()) if self.repair is None else (self.repair.base, self.repair.anchors)
        recipe = self.own.recipe
        assert recipe is not None
        made = recipe._replace(context=self.context, base=base, anchors=anchors)
        self.own.recipe, self.started = made, True

    def _part(self, most: int) -> Segment:
        assert self.words is not None
        done = self.own.written
        ids, first = self.words.tokens[done : done + most], done == self.copied
        copied, pieces = (self.copied, self.context.pieces) if first else (0, ())
        start = self.context.start + done
        adapter = self.context.adapter
        parallel = self.context.parallel
        return Segment(
            ids=ids,
            position=start,
            pieces=pieces,
            slot=self.slot,
            entry=self.own,
            done=done,
            copied=copied,
            adapter=adapter,
            parallel=parallel,
        )

    def _repaired(self) -> Segment:
        """The segment of all recomputed tokens, between those of the base."""
        assert self.repair is not None
        base, places = self.repair.base, self.repair.places
        assert isinstance(self.call, Repair)
        return Segment(
            self._chosen(),
            self.context.start,
            self.context.pieces,
            entry=self.own,
            base=base,
            places=places,
            narrowing=narrowing(self.call.choose),
            adapter=self.context.adapter,
        )

    def choose(self, places: Listed[int]) -> None:
        """Set the tokens that a repair recomputes, before the forward that it is planned in."""
        segment, recipe = self.own.segment, self.own.recipe
        assert self.repair is not None
        assert segment is not None
        assert recipe is not None
        self.repair.places = segment.places = places
        segment.ids = self._chosen()
        self.own.recipe = recipe._replace(places=tuple(places))

    def _chosen(self) -> list[int]:
        assert self.repair is not None
        assert self.words is not None
        return [self.words.tokens[place] for place in self.repair.places]
