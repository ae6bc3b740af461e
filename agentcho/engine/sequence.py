"""One admitted call until it is done: the encodings it reads, the encoding it makes, the tokens it feeds next.

Does not know: when a call runs, how a forward computes, what a decode says.
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
"""How many tokens a shadow feeds at a time, so that it reads its context once for all of them."""
SHORT = 48
"""A message of at most so many tokens, framing and header included, has no shadow begin while it is being said."""


class Status(Enum):
    """WAITING: in line, perhaps encoded in part. RUNNING: a decode or a shadow that has begun. DEFERRED: a shadow whose
    id is finished, and which is encoded when a call first reads it. FINISHED: done, failed or dropped."""

    WAITING = "waiting"
    RUNNING = "running"
    DEFERRED = "deferred"
    FINISHED = "finished"


@dataclass
class Reuse:
    """What a repair keeps of a message: `base`, its encoding, at its new place; `count`, how many tokens are encoded
    anew; `places`, which tokens these are, once that is known; `judged`, the context over which they are chosen by how
    their values differ from the base's (None: they are not chosen that way); `anchors`: those whose offsets are added
    to the base, no token being encoded anew."""

    base: ContextPiece
    count: int
    judged: CallContext | None
    places: Listed[int]
    anchors: tuple[WeightedAnchor, ...] = ()

    @property
    def compared(self) -> tuple[ContextPiece, ...]:
        """All that must be stored before its tokens are chosen, or put together."""
        judged = () if self.judged is None else self.judged.pieces
        return (self.base, *judged, *both(self.anchors))


@dataclass(eq=False)
class Sequence:
    """One admitted call.

    - A prefill, a repair and a deferred shadow encode known `words` into an `entry`. Other calls may share the entry,
      and it may be ready already. Of all calls that want it, the one that `started` it encodes it, perhaps in parts;
      then `slot` keeps the context that the parts attend to. Of an earlier state of the words (`prefix`) the first
      `copied` tokens are taken over as it starts.
    - A decode has a `generation`. Its shadow (`leader` is the decode) feeds the same tokens over another context, after
      they were accepted. Both can become `longest` tokens long and have so many pages `reserved` while they run, and a
      `slot`, where their own tokens come after `before` others.
    - `everyones`: its guard has said that what comes of it is everyone's. `encoded`: its entry was encoded for it.
    - `fed`: the tokens fed so far. `feeds`: the same for each forward. `portion`: the tokens that a shadow feeds in the
      next forward.
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

    # -- what it reads, holds and needs ------------------------------------------------------------------

    @property
    def own(self) -> KVEntry:
        """The entry that its known words are encoded into."""
        assert self.entry is not None
        return self.entry

    @property
    def speech(self) -> Generation:
        """The generation of a decode; of a shadow that of its leader."""
        assert self.generation is not None
        return self.generation

    @property
    def reads(self) -> tuple[ContextPiece, ...]:
        """All pieces that it reads, and holds until it is done: its context; of a repair also its base, the context
        that its tokens are judged over, and its anchors."""
        if self.repair is None:
            return self.context.pieces
        return (*self.context.pieces, *self.repair.compared)

    @property
    def receipt(self) -> Receipt:
        """What known words are encoded over."""
        receipt = self.context.receipt
        if self.repair is None:
            return receipt
        anchors = tuple(piece.id for piece in both(self.repair.anchors) if piece.id is not None)
        return receipt._replace(base=self.repair.base.id, anchors=anchors)

    @property
    def holds(self) -> tuple[KVEntry, ...]:
        """All entries that it counts as a holder of, as often as it names them: those that it reads, and the one that
        it makes for its id. The entry of a deferred shadow is held by its id, and by the calls that read it."""
        return self.uses if self.entry is None or self.status is Status.DEFERRED else (*self.uses, self.entry)

    @property
    def uses(self) -> tuple[KVEntry, ...]:
        """All entries that it holds until it is done: those that it reads, and the one that it goes on from."""
        read = tuple(piece.entry for piece in self.reads)
        return read if self.prefix is None else (*read, self.prefix.entry)

    @property
    def lacks(self) -> list[KVEntry]:
        """The entries that it reads and that are not computed, nor will be by the end of the forward that is being
        planned."""
        return [piece.entry for piece in self.reads if not piece.entry.attendable]

    @property
    def needs(self) -> tuple[KVEntry, ...]:
        """The entries that must be in the store before it begins: all that it reads; of words that were encoded before,
        their entry alone."""
        if self.entry is not None and self.entry.ready:
            return (self.entry,)
        return tuple(piece.entry for piece in self.reads)

    @property
    def reads_stored(self) -> bool:
        """Whether it reads its context in the store with every token, and not in its slot."""
        return self.slot is not None and bool(self.slot.stored)

    @property
    def takes(self) -> SharedPrefix | None:
        """What its entry begins with, to be copied as it begins; None: nothing is."""
        return self.prefix if self.copied else None

    @property
    def grows(self) -> int:
        """How many tokens its own encoding may still add to the store."""
        if self.entry is None:
            return self.longest
        return 0 if self.entry.ready else self.entry.length

    def ask(self) -> None:
        """Ask its guard about all that it reads. `LeakageError`: the guard refuses. `CallbackFailed`: the guard itself
        failed."""
        if self.call.guard is not None:
            over = [piece.id for piece in self.reads if piece.id is not None]
            self.everyones = ask_guard(self.call.guard, self.id, over)

    @property
    def attendable(self) -> bool:
        """Whether all that it attends to is computed, or will be by the end of the forward that is being planned."""
        if self.repair is not None and not all(piece.entry.ready for piece in self.repair.compared):
            return False
        return all(piece.entry.attendable for piece in self.context.pieces)

    def promised(self, *making: Container[KVEntry]) -> bool:
        """Whether every entry that it lacks is in one of `making`, the entries that waiting or deferred calls are going
        to make."""
        return all(any(entry in those for those in making) for entry in self.lacks)

    # -- what it feeds next ------------------------------------------------------------------------------

    @property
    def placed(self) -> bool:
        """Whether its known words have all the room that they need: it has started, or its entry is computed or will be
        by the end of the forward that is being planned."""
        if self.entry is None or self.entry.dropped:
            return False
        return self.started or self.entry.attendable

    @property
    def due(self) -> bool:
        """Whether it may go into the forward that is being planned, provided that its context is ready."""
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
        """The ids that the next forward takes of a decode or a shadow."""
        if self.leader is None:
            return self.speech.feed
        return self.speech.script[self.fed : self.fed + self.portion]

    @property
    def remaining(self) -> int:
        """How many tokens it has to feed next; of known words, all that are left."""
        if self.entry is None:
            return len(self.feed)
        if self.entry.attendable:
            return 0
        done = max(self.entry.written, self.copied)
        return self.repair.count if self.repair is not None else self.entry.length - done

    @property
    def depth(self) -> int:
        """How many tokens its next token attends to."""
        return self.context.length + (0 if self.entry is None else self.entry.written)

    @property
    def lacking(self) -> int:
        """How many tokens of its leader a shadow has not fed."""
        return len(self.speech.script) - self.fed

    @property
    def late(self) -> bool:
        """Whether it is a shadow that has fed nothing, and its leader has ended in a short message. Such a shadow is
        not encoded before a call reads it; it is so short that the call does not wait long."""
        ended = self.entry is None and self.leader is not None and self.speech.stopped is not None
        return ended and not self.fed and self.lacking <= SHORT

    def next_segment(self) -> Segment:
        """The next segment of a decode or a shadow. Of all rows over a shared run, the first to begin gathers that."""
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
        """Note that so many of the tokens fed last are none of what it says."""
        self.fed -= tokens
        self.feeds[-1] -= tokens

    def guess(self) -> DraftTokens:
        """What a decode may say next. Nothing is guessed before its first token, or where its forwards are made again
        as they were."""
        if self.leader is not None or not self.fed or self.slot is None or self.slot.alone:
            return NONE
        return self.speech.guess()

    def starved(self, fed: Container[Sequence]) -> bool:
        """Whether what was begun for it in a forward came to nothing; `fed` are the rows of that forward."""
        if self.entry is None:
            return self.status is Status.RUNNING and self not in fed
        return not self.entry.ready

    # -- known words -------------------------------------------------------------------------------------

    def encode(self, most: int) -> Segment:
        """The next segment of known words, of at most `most` tokens. It completes the entry, or goes on with it.

        The first of them fixes the recipe of the entry to this call's own context: an equal call may read other entries
        with the same keys, and those may never have been computed.
        """
        entry = self.own
        if not self.started:
            self.start()
            self.encoded, entry.written = True, self.copied
        entry.segment = self._repaired() if self.repair is not None else self._part(most)
        return entry.segment

    def start(self) -> None:
        """Note that its entry is made now, and over which context: see `encode`."""
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
        """The segment of the chosen tokens, among those of the base, all at once."""
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
        """Say which tokens a repair encodes anew, before the forward that it is planned in."""
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
