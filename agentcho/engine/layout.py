"""Lays a call out: the ids of its message, part by part, what it attends to, the positions of both, and the key that
names what comes of it.

The one place where that is decided, for whatever computes: a model, a fake, sets, or nothing. Does not know: how keys
and values are made or kept, when a call runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from agentcho.calls.call import (
    Call,
    ContextEntry,
    Decode,
    EncodingId,
    First,
    FramingPort,
    Most,
    Offsets,
    Prefill,
    Receipt,
    Stopped,
)
from agentcho.calls.values import text as plain
from agentcho.engine.base import SharedContext, Slot
from agentcho.errors import ContextOverflow, RequestError
from agentcho.message import Words

if TYPE_CHECKING:
    from agentcho.engine.cache import KVEntry

Ids = tuple[int, ...]


class Framed(NamedTuple):
    """The ids of one message, in four parts; of a decode, `content` is what it has said by now."""

    opening: Ids
    header: Ids
    content: Ids
    closing: Ids

    @property
    def begun(self) -> Ids:
        """The ids before the content."""
        return self.opening + self.header

    @property
    def tokens(self) -> Ids:
        """All of them, in order."""
        return self.opening + self.header + self.content + self.closing

    @property
    def span(self) -> tuple[int, int]:
        """The (start, stop) of header and content within `tokens`."""
        begin = len(self.opening)
        return begin, begin + len(self.header) + len(self.content)

    @property
    def said(self) -> tuple[int, int]:
        """The (start, stop) of the content alone."""
        begin = len(self.opening) + len(self.header)
        return begin, begin + len(self.content)

    def inside(self, tokens: Ids, closed: bool = True) -> Ids | None:
        """The ids of header and content of a message with this framing; None: it has another. One that is not `closed`
        ended before its closing."""
        closing = self.closing if closed else ()
        end = len(tokens) - len(closing)
        if end < len(self.opening) or tokens[: len(self.opening)] != self.opening or tokens[end:] != closing:
            return None
        return tokens[len(self.opening) : end]


def frame(
    template: FramingPort, role: str, name: str | None, header: Iterable[int] = (), content: Iterable[int] = ()
) -> Framed:
    """The ids of a message of this role, by `name`, with these ids of header and content."""
    return Framed(template.opening(role, name), tuple(header), tuple(content), template.closing(role))


def encoded(
    template: FramingPort, role: str, name: str | None, text: str, tokens: Sequence[int] | None = None
) -> Words:
    """The words of a `Prefill` of this text, or of these content ids: see `FramePort.frame`. `RequestError`: one of the
    ids cannot be content."""
    said, content = plain(text, "the text"), template.content
    own = content.encode(said) if tokens is None else content.check(tokens)
    said = said if tokens is None else content.decode(own)
    framed = frame(template, role, name, content=own)
    canonical = tokens is None or content.spells(own, said)
    return Words("", said, framed.tokens, framed.span, canonical=canonical)


def decoded(call: Decode, framed: Framed, text: str, stopped: Stopped | None, canonical: bool = True) -> Words:
    """The words of a finished `Decode` that has said `text`, the content of `framed`."""
    return Words(call.header, text, framed.tokens, framed.span, framed.said, stopped, canonical)


class Piece(NamedTuple):
    """One encoding as a context places it: its first token at position `offset`. `id` None is the BOS."""

    id: EncodingId | None
    entry: KVEntry
    offset: int

    @property
    def shift(self) -> int:
        """By how many positions its keys turn."""
        return self.offset - self.entry.position


class Context(NamedTuple):
    """The pieces a call attends to, BOS first where the model has one, and the call's own first position.

    `origin` names what computes it.
    """

    pieces: tuple[Piece, ...]
    start: int
    origin: str = ""

    @property
    def receipt(self) -> Receipt:
        """What the gather of these pieces attends to."""
        entries = tuple(ContextEntry(p.id, p.offset, p.entry.length) for p in self.pieces if p.id is not None)
        return Receipt(entries, self.start, any(p.id is None for p in self.pieces))

    @property
    def length(self) -> int:
        """Tokens of context."""
        return sum(piece.entry.length for piece in self.pieces)

    def key(
        self, tokens: Sequence[int], salt: str, recipe: Literal["whole", "stepwise"], feeds: Sequence[int] = ()
    ) -> bytes:
        """A hash that names the keys and values of `tokens` in this context, framed part by part.

        `salt` keeps apart what must not be shared, `recipe` what was fed at once from what was fed token by token,
        `feeds`, where forwards were of their own, what was fed in others: the last bits are not the same.
        """
        hasher = hashlib.blake2b(digest_size=32, person=recipe.encode())
        for text in (self.origin.encode(), salt.encode()):
            hasher.update(len(text).to_bytes(8) + text)
        hasher.update(len(self.pieces).to_bytes(8))
        for piece in self.pieces:
            hasher.update(piece.entry.key + piece.offset.to_bytes(8))
        hasher.update(b"own" + self.start.to_bytes(8) + len(tokens).to_bytes(8))
        width = 4 if max(tokens, default=0) < 1 << 32 else 8  # ids of fakes are words
        for numbers in (tokens, feeds):
            hasher.update(b"".join(number.to_bytes(width) for number in numbers))
        return hasher.digest()


class Recipe(NamedTuple):
    """How the keys and values of `tokens` come about: over `context`, at once or (`feeds` not empty) in forwards of so
    many tokens each. With a `base`, the tokens at `places`, found by `choose` over what `judged` names, anew, and the
    others as the base has them. `way` and `feeds` are part of the key: what was fed token by token is so named, however
    it is made again."""

    tokens: tuple[int, ...]
    context: Context
    salt: str
    way: Literal["whole", "stepwise"] = "whole"
    feeds: tuple[int, ...] = ()
    base: Piece | None = None
    choose: First | Most | None = None
    judged: bytes = b""
    places: tuple[int, ...] = ()

    @property
    def key(self) -> bytes:
        """What names the result."""
        fresh = self.context.key(self.tokens, self.salt, self.way, self.feeds)
        return fresh if self.base is None else repaired_key(fresh, self.base.entry.key, self.choose, self.judged)

    @property
    def sources(self) -> tuple[KVEntry, ...]:
        """All that it is made from, each once."""
        base = () if self.base is None else (self.base,)
        return tuple(dict.fromkeys(piece.entry for piece in (*self.context.pieces, *base)))

    def segment(self, entry: KVEntry) -> Segment:
        """One forward's work, into `entry`."""
        ids = self.tokens if self.base is None else [self.tokens[place] for place in self.places]
        start, pieces = self.context.start, self.context.pieces
        return Segment(ids, start, pieces, entry=entry, base=self.base, places=self.places)


def repaired_key(fresh: bytes, base: bytes, choose: object, judged: bytes) -> bytes:
    """A hash that names a repaired encoding: by what it would be anew, what it keeps, and how and over what its tokens
    are chosen."""
    parts = fresh + base + judged + repr(choose).encode()
    return hashlib.blake2b(parts, digest_size=32, person=b"repaired").digest()


@dataclass(eq=False)
class Segment:
    """New tokens `ids` at `position`, over `pieces`.

    With a `slot`, pieces are gathered into it and own keys appended; where it has a shared context, they are gathered
    there. Own keys go to `entry`'s block, if there is one. `wanted` are the own token indices whose next-token logits
    are asked for. With a `base`, `ids` are those tokens of a message that are encoded anew, at its indices `places`;
    the others are the base's. The first `done` tokens of the message were encoded before, and are in `entry` already.
    """

    ids: Sequence[int]
    position: int
    pieces: Sequence[Piece] = ()
    slot: Slot | None = None
    entry: KVEntry | None = None
    wanted: Sequence[int] = ()
    base: Piece | None = None
    places: Sequence[int] = ()
    done: int = 0
    first: int = field(default=0, init=False)

    @property
    def shared(self) -> SharedContext | None:
        """What it attends to along with other rows."""
        return None if self.slot is None else self.slot.pool.shared

    @property
    def gathered(self) -> int:
        """Tokens that are gathered into its own slot."""
        return 0 if self.shared is not None else sum(piece.entry.length for piece in self.pieces)

    @property
    def written(self) -> tuple[Piece, int] | None:
        """What is to be gathered of its own message, where that is not in its slot, and how many tokens that is."""
        if self.entry is None or not self.done or self.slot is not None:
            return None
        return Piece(None, self.entry, self.entry.position), self.done

    @property
    def last(self) -> bool:
        """Whether nothing of its message is left when it is done."""
        return self.entry is None or self.base is not None or self.done + len(self.ids) == self.entry.length

    @property
    def positions(self) -> Sequence[int]:
        """Of its tokens, one by one."""
        if self.base is None:
            return range(self.position, self.position + len(self.ids))
        return [self.position + place for place in self.places]

    def span(self) -> slice:
        """Where its tokens stand in the packed row."""
        return slice(self.first, self.first + len(self.ids))


class Rules(NamedTuple):
    """What of an engine its layouts depend on: its `template`, the piece that every context begins with, the number of
    positions, and the name of what computes, which is part of every key."""

    template: FramingPort
    bos: Piece | None
    limit: int
    origin: str = ""


class Layout(NamedTuple):
    """Where a call stands. `framed`: its own ids, of a decode as far as they are known before it has said anything; of
    a shadow or a repair, which take the ids of another message, none. `longest`: how many tokens it may come to.
    `words` are those of a prefill."""

    framed: Framed
    context: Context
    longest: int
    words: Words | None = None


NOTHING = Framed((), (), (), ())
Parents = Sequence[tuple[EncodingId, "KVEntry"]]


def layout(rules: Rules, call: Call, parents: Parents, own: int = 0) -> Layout:
    """Lay a call out over its resolved parents; nothing is held. `own` is the length of what a shadow or a repair
    takes its ids from.

    Raises `RequestError`, `ContextOverflow`, and what is wrong with the call's own ids: `RequestError`.
    """
    framed, words, more = NOTHING, None, own
    if isinstance(call, Prefill):
        words = encoded(rules.template, call.role, call.name, call.text, call.tokens)
        more = len(words.tokens)
    elif isinstance(call, Decode):
        content = rules.template.content
        forced = () if call.forced is None else content.check(call.forced)
        framed = frame(rules.template, "assistant", call.name, content.encode(call.header), forced)
        more = len(framed.tokens) + (call.sampling.max_tokens if call.forced is None else 0)
    context = place(rules, parents, call.offsets, call.new_offset)
    check_fits(context, more, rules.limit)
    return Layout(framed, context, more, words)


def place(rules: Rules, parents: Parents, offsets: Offsets, new_offset: int | None) -> Context:
    """Give every parent and the new message its position: as asked, where made, or right after the one before."""
    if offsets == "made":
        offsets = [entry.position for _, entry in parents]
        ends = [entry.position + entry.length for _, entry in parents]
        new_offset = max(ends, default=None) if new_offset is None else new_offset
    asked = [None] * len(parents) if offsets is None else offsets
    if len(asked) != len(parents):
        raise RequestError.offsets(f"{len(asked)} offsets for {len(parents)} parents")
    pieces, end = [] if rules.bos is None else [rules.bos], 0 if rules.bos is None else 1
    for (id, entry), offset in zip(parents, asked, strict=True):
        start = end if offset is None else offset
        pieces.append(Piece(id, entry, start))
        end = start + entry.length
    return Context(tuple(pieces), end if new_offset is None else new_offset, rules.origin)


def check_fits(context: Context, own: int, limit: int) -> None:
    """`ContextOverflow` where a parent or the new message's `own` tokens would pass the last of `limit` positions."""
    end = max([piece.offset + piece.entry.length for piece in context.pieces] + [context.start + own])
    if end > limit:
        raise ContextOverflow(end, limit)
