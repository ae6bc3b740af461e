"""One admitted call until it is done: what it reads and makes, what it feeds next, and how a decode goes on and ends.

Does not know: when a call runs, how a forward computes.
"""

from __future__ import annotations

from collections.abc import Container
from collections.abc import Sequence as Listed
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from agentcho.calls.call import Begun, Call, Decode, EncodingId, Sampling, Spoken, Stopped
from agentcho.calls.checks import asked
from agentcho.engine.base import Constraint, Row, Slot, Template
from agentcho.engine.cache import KVEntry
from agentcho.engine.layout import Context, Framed, Layout, Piece, Segment, decoded
from agentcho.message import Words

STRIDE = 16
"""Tokens that a shadow feeds at a time: it reads its context once for all of them."""
SHORT = 2 * STRIDE
"""Tokens of a message, its framing and header among them, up to which its shadow does not begin while it is said."""


class Status(Enum):
    """WAITING: in line, perhaps encoded in part. RUNNING: a decode or a shadow that has begun. DEFERRED: a shadow whose
    id is finished, and which is encoded when somebody first reads it. FINISHED: done, failed or dropped."""

    WAITING = "waiting"
    RUNNING = "running"
    DEFERRED = "deferred"
    FINISHED = "finished"


class Draw(NamedTuple):
    """How a token is drawn: by which options, the number of the token (from 0), the ids it may be (None: any)."""

    sampling: Sampling
    nth: int
    allowed: Any = None


class Generation:
    """What a decode says, from its framing to its closing.

    Feeds opening and header, then each token it is given, then the closing. `feed` is what the next forward takes.
    """

    def __init__(
        self, id: EncodingId, call: Decode, placed: Layout, template: Template, constraint: Constraint | None
    ) -> None:
        self.id, self.call, self.receipt = id, call, placed.context.receipt
        self._framed, self._closing = placed.framed, placed.framed.closing
        self._stops, self._content, self._stream = template.stops, template.content, template.content.stream()
        self._constraint, self._until, self._last = constraint, call.sampling.stop, call.last
        self.feed: tuple[int, ...] = placed.framed.begun
        self.sampled: list[int] = []
        self.logits: list[Row] = []
        self.stopped: Stopped | None = None
        self._text, self._shown = "", 0

    @property
    def wanted(self) -> Listed[int]:
        """The own tokens of the next feed whose next-token logits are asked for: the last one's while it waits for a
        token; where logits are kept, those of every token of its text, the last one's for the first closing token."""
        asks = self.stopped is None
        said = len(self.feed) - (0 if asks else len(self._closing))
        if self.call.logits and self.sampled:
            return range(said)
        return (said - 1,) if asks else ()

    @property
    def script(self) -> tuple[int, ...]:
        """Every id that is certain to be the message's: framing, header, accepted tokens, the closing once it ended."""
        closing = () if self.stopped is None else self._closing
        return (*self._framed.begun, *self.sampled, *closing)

    @property
    def tokens(self) -> tuple[int, ...]:
        """Every id of the message, as if it ended now."""
        return (*self._framed.begun, *self.sampled, *self._closing)

    def draw(self) -> Draw:
        """How the next token is to be drawn."""
        return Draw(self.call.sampling, len(self.sampled), self._constraint.allowed if self._constraint else None)

    def forced(self) -> int | None:
        """The next forced token: the text's, then the closing's first. None where tokens are sampled."""
        if self.call.forced is None:
            return None
        done = len(self.sampled)
        return self.call.forced[done] if done < len(self.call.forced) else self._closing[0]

    def accept(self, token: int) -> Spoken | None:
        """Say `token`; sets the next feed. None where it ended the message and adds no text."""
        forced = self.call.forced
        if forced is not None:
            return self._repeat(token, forced)
        left = self._last - len(self.sampled)
        if self._constraint is not None:
            token = self._constraint.take(token, left)
        if token in self._stops:
            self._end("stop", ())
            return self._tail()
        self.feed = (token,)
        self.sampled.append(token)
        self._text += self._stream.push(token)
        if self._until and self._cut() is not None:
            self._end("stop_string", (token,))
        elif self._constraint is not None and self._constraint.done:
            self._end("stop", (token,))
        elif left == 1:
            self._end("max_tokens", (token,))
        return Spoken(self.id, len(self.sampled) - 1, token, self._show())

    def _repeat(self, token: int, forced: tuple[int, ...]) -> Spoken | None:
        """The next forced token, or as many as go in at once."""
        done = len(self.sampled)
        if forced and self.call.stride > 1:
            self._say(forced[done : done + self.call.stride])
            if len(self.sampled) == len(forced):
                self._end("forced", self.feed)
            return Spoken(self.id, done, forced[done], self._show())
        if done == len(forced):
            self._end("forced", ())
            return self._tail()
        self._say((token,))
        return Spoken(self.id, done, token, self._show())

    def _say(self, tokens: tuple[int, ...]) -> None:
        self.feed = tokens
        for token in tokens:
            self.sampled.append(token)
            self._text += self._stream.push(token)

    def _end(self, why: Stopped, unfed: tuple[int, ...]) -> None:
        self.stopped, self.feed = why, unfed + self._closing
        whole = self._content.decode(self.sampled)
        if whole.startswith(self._text):  # a character that stayed incomplete comes out as U+FFFD
            self._text = whole

    def _cut(self) -> int | None:
        """Where the earliest stop string begins in the text, if one is there."""
        found = [at for at in map(self._text.find, self._until) if at >= 0]
        return min(found, default=None)

    def _show(self) -> str:
        """Text that is certain to stay, and was not shown before."""
        end = len(self._text)
        if self._until:
            cut = self._cut()
            end = cut if cut is not None else end - (self._doubtful() if self.stopped is None else 0)
        piece, self._shown = self._text[self._shown : end], max(self._shown, end)
        return piece

    def _doubtful(self) -> int:
        """Length of the text's end that may yet turn out to begin a stop string."""
        longest = max(map(len, self._until), default=1) - 1
        ends = range(min(longest, len(self._text)), 0, -1)
        return next((n for n in ends if any(stop.startswith(self._text[-n:]) for stop in self._until)), 0)

    def _tail(self) -> Spoken | None:
        piece = self._show()
        return Spoken(self.id, len(self.sampled) - 1, self.sampled[-1], piece) if piece else None

    @property
    def begun(self) -> Begun:
        """What is fed before its first token, and over what."""
        framed = self._framed._replace(content=(), closing=())
        return Begun(self.id, decoded(self.call, framed, "", None), self.receipt)

    def words(self) -> Words:
        """The finished message."""
        whole, cut = self._content.decode(self.sampled), self._cut()
        text = whole if cut is None else whole[:cut]
        framed: Framed = self._framed._replace(content=tuple(self.sampled))
        return decoded(self.call, framed, text, self.stopped, self._content.spells(self.sampled, text))


@dataclass
class Reuse:
    """What a repair keeps: `base`, where it stands now; how many tokens are encoded anew, which (`places`, once they
    are known), and the context over which they are compared with the base's, where they are chosen by that
    (`judged`)."""

    base: Piece
    count: int
    judged: Context | None
    places: Listed[int]


@dataclass(eq=False)
class Sequence:
    """One admitted call.

    A prefill, a repair and a deferred shadow encode `words` that are known into an `entry`, which may be shared, and
    may be ready already; of all calls that want it the one that `started` it encodes it, perhaps in parts: then `slot`
    keeps what these attend to. A decode has a `generation`, which its shadow (`leader` is the decode) follows: the same
    tokens over another context, fed once they are accepted. Both may become `longest` tokens long, and have pages
    `reserved` for that while they run, and a `slot`, in which their own tokens come after `before` others; `fed` counts
    the tokens fed so far, `feeds` forward by forward, and a shadow feeds `portion` in the next one.
    """

    id: EncodingId
    call: Call
    context: Context
    longest: int
    words: Words | None = None
    entry: KVEntry | None = None
    repair: Reuse | None = None
    generation: Generation | None = None
    leader: Sequence | None = None
    status: Status = Status.WAITING
    slot: Slot | None = None
    started: bool = False
    reserved: int = 0
    before: int = 0
    fed: int = 0
    portion: int = 0
    feeds: list[int] = field(default_factory=list)

    # -- what it reads, holds and needs ------------------------------------------------------------------

    @property
    def own(self) -> KVEntry:
        """What known words are encoded into."""
        assert self.entry is not None
        return self.entry

    @property
    def speech(self) -> Generation:
        """What a decode says, or the leader of a shadow."""
        assert self.generation is not None
        return self.generation

    @property
    def reads(self) -> tuple[Piece, ...]:
        """All stored keys that it reads, and holds until it is done: its context; of a repair its base too, and what
        its tokens are judged over."""
        if self.repair is None:
            return self.context.pieces
        judged = () if self.repair.judged is None else self.repair.judged.pieces
        return (*self.context.pieces, self.repair.base, *judged)

    @property
    def holds(self) -> tuple[KVEntry, ...]:
        """All that it counts as a holder of, as often as it names it: what it reads, and what it makes for its id. That
        of a deferred shadow is held by who may ask for it."""
        read = tuple(piece.entry for piece in self.reads)
        return read if self.entry is None or self.status is Status.DEFERRED else (*read, self.entry)

    @property
    def lacks(self) -> list[KVEntry]:
        """What it reads and no forward has made, nor will by the end of the one that is being planned."""
        return [piece.entry for piece in self.reads if not piece.entry.attendable]

    @property
    def needs(self) -> tuple[KVEntry, ...]:
        """What must be in the store for it to begin: all that it reads; of words that were encoded before, that
        alone."""
        if self.entry is not None and self.entry.ready:
            return (self.entry,)
        return tuple(piece.entry for piece in self.reads)

    @property
    def grows(self) -> int:
        """How many tokens its own encoding may yet add to the store."""
        if self.entry is None:
            return self.longest
        return 0 if self.entry.ready else self.entry.length

    def ask(self) -> None:
        """Ask its guard about all that it reads: `LeakageError` where that refuses, `CallbackFailed` where it fails."""
        if self.call.guard is not None:
            asked(self.call.guard, self.id, [piece.id for piece in self.reads if piece.id is not None])

    @property
    def attendable(self) -> bool:
        """Whether all that it attends to is stored, or completed by the forward that is being planned."""
        if self.repair is not None:
            judged = () if self.repair.judged is None else self.repair.judged.pieces
            if not all(piece.entry.ready for piece in (self.repair.base, *judged)):
                return False
        return all(piece.entry.attendable for piece in self.context.pieces)

    def promised(self, *making: Container[KVEntry]) -> bool:
        """Whether all that it lacks is in one of these, which calls are going to make."""
        return all(any(entry in those for those in making) for entry in self.lacks)

    # -- what it feeds next ------------------------------------------------------------------------------

    @property
    def placed(self) -> bool:
        """Whether known words have all the room they need: they go on with what was started, or their keys are there,
        or come out of the forward that is being planned."""
        if self.entry is None or self.entry.dropped:
            return False
        return self.started or self.entry.attendable

    @property
    def due(self) -> bool:
        """Whether it may go into the forward that is being planned, where what it attends to is there."""
        if self.entry is None:
            return self.leader is None or self.portion > 0
        return self.started or self.entry.attendable or self.entry.pages is None  # else another encodes it in parts

    @property
    def divisible(self) -> bool:
        """Whether it can be encoded in parts: a prefill of known text. A deferred shadow is encoded at once, as a
        shadow's last tokens are."""
        return self.entry is not None and self.repair is None and self.leader is None

    @property
    def feed(self) -> tuple[int, ...]:
        """What the next forward takes of a decode or a shadow."""
        if self.leader is None:
            return self.speech.feed
        return self.speech.script[self.fed : self.fed + self.portion]

    @property
    def remaining(self) -> int:
        """Tokens that it has to feed next: of known words all that is left."""
        if self.entry is None:
            return len(self.feed)
        if self.entry.attendable:
            return 0
        return self.repair.count if self.repair is not None else self.entry.length - self.entry.written

    @property
    def depth(self) -> int:
        """How many tokens its next one attends to."""
        return self.context.length + (0 if self.entry is None else self.entry.written)

    @property
    def lacking(self) -> int:
        """Tokens that are the leader's and not yet a shadow's own, or go into the same forward."""
        return len(self.speech.script) - self.fed

    @property
    def late(self) -> bool:
        """Whether it is a shadow whose leader has ended in a short message, and has fed nothing: it need not begin
        before somebody reads it. More is not left for who reads it to wait for."""
        ended = self.entry is None and self.leader is not None and self.speech.stopped is not None
        return ended and not self.fed and self.lacking <= SHORT

    def next_segment(self) -> Segment:
        """What a decode or a shadow feeds next. Of all rows over a shared context the first to begin gathers it."""
        assert self.slot is not None
        generation, shared = self.speech, self.slot.pool.shared
        if self.leader is None:
            feed, wanted = generation.feed, generation.wanted
        else:
            feed, wanted = self.feed, ()
        pieces = () if self.fed or (shared is not None and shared.claimed) else self.context.pieces
        if shared is not None:
            shared.claimed = True
        return Segment(feed, self.context.start + self.fed, pieces, slot=self.slot, wanted=wanted)

    def advance(self, fed: int) -> None:
        """So many tokens of a decode or a shadow went through a forward."""
        self.fed += fed
        self.feeds.append(fed)
        self.portion = 0
        if self.leader is None:
            self.speech.feed = ()

    # -- known words -------------------------------------------------------------------------------------

    def encode(self, most: int) -> Segment:
        """The next segment of known words, of at most so many tokens, which completes the entry or goes on with it.

        From now on the entry is made over this call's context, and made again over that: an equal call may read other
        entries of the same keys, which nobody has made."""
        entry = self.own
        recipe = entry.recipe
        assert recipe is not None
        if not self.started:
            base = None if self.repair is None else self.repair.base
            entry.recipe, self.started = recipe._replace(context=self.context, base=base), True
        entry.segment = self._repaired() if self.repair is not None else self._part(most)
        return entry.segment

    def _part(self, most: int) -> Segment:
        assert self.words is not None
        done = self.own.written
        ids = self.words.tokens[done : done + most]
        pieces = () if done else self.context.pieces
        return Segment(ids, self.context.start + done, pieces, slot=self.slot, entry=self.own, done=done)

    def _repaired(self) -> Segment:
        """The chosen tokens among those of the base, all at once."""
        assert self.repair is not None
        base, places = self.repair.base, self.repair.places
        start, pieces = self.context.start, self.context.pieces
        return Segment(self._chosen(), start, pieces, entry=self.own, base=base, places=places)

    def choose(self, places: Listed[int]) -> None:
        """Say which tokens a repair encodes anew, before the forward it is planned in."""
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


def take_turns(rows: Listed[Sequence], exact: bool) -> None:
    """Say how many tokens each shadow among decodes and shadows feeds in the next forward: `STRIDE` at least, and all
    of them together no more than that, or than their leaders say in it, so that they keep up and hold up nobody. Who
    lacks most goes first. None goes with its leader's first token, whose coming it must not delay, or begins before its
    message is more than `SHORT`; each goes with its leader's last, unless it is late. `exact`: what one feeds depends
    on its leader only, and a late one is fed like the others."""
    shadows = [row for row in rows if row.leader is not None]
    room = max(STRIDE, sum(len(leader.feed) for shadow in shadows if (leader := shadow.leader) and leader.fed))
    for shadow in sorted(shadows, key=lambda each: (-each.lacking, each.id)):
        shadow.portion, most, leader = 0, STRIDE if exact else room, shadow.leader
        if shadow.speech.stopped is not None:
            shadow.portion = shadow.lacking if exact or not shadow.late else 0
        elif leader and leader.fed and min(most, shadow.lacking) >= STRIDE and (shadow.fed or shadow.lacking > SHORT):
            shadow.portion = min(most, shadow.lacking)
            room -= shadow.portion
