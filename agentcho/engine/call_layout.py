"""Lays a call out: the token ids of its message, part by part, the encodings that it attends to, the positions of both,
and the key that names the resulting keys and values.

This is the only place that decides this, for every kind of engine: with a model, scripted, or set-based. Independent of
how keys and values are computed or stored, and of scheduling.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from agentcho.engine.protocols import Stored
from agentcho.errors import ContextOverflow, RequestError
from agentcho.message import Words
from agentcho.protocol.call import (
    Call,
    ContextEntry,
    Decode,
    EncodingId,
    FramingPort,
    Offsets,
    Prefill,
    Receipt,
    Repair,
    Stopped,
    ThinkingPort,
)
from agentcho.protocol.value_checks import checked_text as plain
from agentcho.reuse.method import ByDeviation, Selection, Weighing

if TYPE_CHECKING:
    from agentcho.engine.spill_files import SpillFile

Ids = tuple[int, ...]


class FramedTokens(NamedTuple):
    """The token ids of one message, in four parts. For a decode, `content` is what it has generated so far."""

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
        """The ids of header and content in `tokens`, if that is a message with this opening and closing, else None. A
        message that is not `closed` has no closing."""
        closing = self.closing if closed else ()
        end = len(tokens) - len(closing)
        if end < len(self.opening) or tokens[: len(self.opening)] != self.opening or tokens[end:] != closing:
            return None
        return tokens[len(self.opening) : end]


def frame(
    template: FramingPort,
    role: str,
    name: str | None,
    header: Iterable[int] = (),
    content: Iterable[int] = (),
    answer: bool = False,
) -> FramedTokens:
    """Frame these ids of header and content as a message of this role, spoken by `name`. `answer`: it is or was
    generated."""
    return FramedTokens(template.opening(role, name, answer), tuple(header), tuple(content), template.closing(role))


def encoded(
    template: FramingPort,
    role: str,
    name: str | None,
    text: str,
    tokens: Sequence[int] | None = None,
    opening: tuple[int, ...] | None = None,
) -> Words:
    """The words of a `Prefill` of this text, or of these content ids; see `FramePort.frame`. A system message with the
    text of the default prompt is that prompt. `opening`: the ids before the content, if not those of the role.
    Raises `RequestError` if one of the ids cannot be content."""
    said, content, default = plain(text, "the text"), template.content, template.default
    if default is not None and role == "system" and said == default.text:
        return Words("", said, default.tokens, default.content, canonical=False)
    own = content.encode(said) if tokens is None else content.check(tokens)
    said = said if tokens is None else content.decode(own)
    framed = frame(template, role, name, content=own)
    framed = framed if opening is None else framed._replace(opening=opening)
    canonical = tokens is None or content.spells(own, said)
    return Words("", said, framed.tokens, framed.span, canonical=canonical)


def whole(text: str, tokens: Ids) -> Words:
    """The words of a `Prefill` whose ids are all given, framing included. All of them count as content."""
    return Words("", text, tokens, (0, len(tokens)), canonical=False)


def decoded(call: Decode, framed: FramedTokens, text: str, stopped: Stopped | None, canonical: bool = True) -> Words:
    """The words of a `Decode` that generated `text`, which is the content of `framed`."""
    return Words(call.header, text, framed.tokens, framed.span, framed.said, stopped, canonical)


@dataclass(eq=False)
class KVEntry:
    """The keys and values of `length` tokens. Calls with the same `key` (tokens, context, positions) share one entry.

    - `position`: the position at which its first token was encoded. `written`: number of tokens computed so far.
    - A `ready` entry was computed in full. It is in one of four tiers: in `pages` of the store, in a `host` copy, in a
      `file` on disk, or dropped, to be made again from its `recipe`.
    - Before that, only segments of the forward that completes it (`segment`) can attend to it.
    - `holders`: how many ids, unfinished calls and (for the BOS) engines can still ask for it.
    - `digest`: the checksum of its content, once taken.
    """

    key: bytes
    position: int
    length: int
    recipe: EncodingRecipe | None = field(default=None, repr=False)
    pages: Stored | None = field(default=None, repr=False)
    host: Stored | None = field(default=None, repr=False)
    file: SpillFile | None = field(default=None, repr=False)
    written: int = 0
    segment: Segment | None = field(default=None, repr=False)
    holders: int = 0
    digest: int | None = None

    @property
    def ready(self) -> bool:
        """Whether all of its tokens were computed."""
        return self.written == self.length

    @property
    def attendable(self) -> bool:
        """Whether it is computed, or will be by the end of the forward that is being planned."""
        return self.ready or (self.segment is not None and self.segment.last)

    @property
    def block(self) -> Stored:
        """Its pages in the store. It must be there."""
        assert self.pages is not None
        return self.pages

    @property
    def dropped(self) -> bool:
        """Whether it was computed and only its recipe is left."""
        return self.ready and self.pages is None and self.host is None and self.file is None

    @property
    def sources(self) -> tuple[KVEntry, ...]:
        """The entries that are gathered to make it, each once."""
        assert self.recipe is not None
        return self.recipe.sources

    @classmethod
    def of(cls, recipe: EncodingRecipe) -> KVEntry:
        """A new, empty entry for the result of `recipe`."""
        return cls(recipe.key, recipe.context.start, len(recipe.tokens), recipe)


class ContextPiece(NamedTuple):
    """One encoding at its place in a context: its first token stands at position `offset`. `id` None is the BOS."""

    id: EncodingId | None
    entry: KVEntry
    offset: int

    @property
    def shift(self) -> int:
        """By how many positions its keys are shifted from where they were encoded."""
        return self.offset - self.entry.position


class SharedRun(Protocol):
    """A run of `pieces` that several slots read in one place. `claimed`: one of their decodes gathers it in this
    forward, or has gathered it."""

    claimed: bool

    @property
    def pieces(self) -> Sequence[ContextPiece]: ...


class Reading(Protocol):
    """The part of a shared `run` that one slot reads."""

    @property
    def run(self) -> SharedRun: ...


class Slot(Protocol):
    """The core's view of the place where a running decode keeps the keys and values that it attends to. It gathers the
    `pieces` of its context; the others are in the shared runs of `readings`, or are read where they are `stored`.
    `alone`: the bits of its decode must not depend on other calls. The runner that made it has the rest."""

    @property
    def pieces(self) -> Sequence[ContextPiece]: ...
    @property
    def readings(self) -> Sequence[Reading]: ...
    @property
    def stored(self) -> Sequence[ContextPiece]: ...
    @property
    def alone(self) -> bool: ...


class ParallelContext(NamedTuple):
    """The tokens of a context that were encoded side by side, as the (start, stop) of each run of them in the order of
    the context's tokens, and how they are weighed."""

    ape: Weighing
    spans: tuple[tuple[int, int], ...]


class CallContext(NamedTuple):
    """The pieces that a call attends to, the BOS first if the model has one, and `start`, the position of the call's
    own first token. `origin` names the runner and whatever changes its keys; `adapter` is that of the call. `parallel`
    is None if no key is weighed differently."""

    pieces: tuple[ContextPiece, ...]
    start: int
    origin: str = ""
    adapter: str | None = None
    parallel: ParallelContext | None = None

    def weighed(self, ape: Weighing) -> CallContext:
        """The same context, read with this `ape`."""
        spans = tuple(beside(self.pieces))
        return self._replace(parallel=ParallelContext(ape, spans)) if spans else self

    @property
    def receipt(self) -> Receipt:
        """The receipt of this context: the encodings that are gathered for it, and where."""
        entries = tuple(ContextEntry(p.id, p.offset, p.entry.length) for p in self.pieces if p.id is not None)
        return Receipt(entries, self.start, sum(p.entry.length for p in self.pieces if p.id is None))

    @property
    def length(self) -> int:
        """The number of tokens of all its pieces."""
        return sum(piece.entry.length for piece in self.pieces)

    def key(
        self, tokens: Sequence[int], salt: str, recipe: Literal["whole", "stepwise"], feeds: Sequence[int] = ()
    ) -> bytes:
        """A hash that names the keys and values of `tokens` in this context. Variable parts are hashed with their
        length, so that different inputs never collide by concatenation.

        `salt` separates classes of readers that must not share entries. `recipe` and `feeds` separate tokens that were
        fed at once, token by token, and (in the deterministic profile) in forwards of other sizes, because the last
        bits differ.
        """
        hasher = hashlib.blake2b(digest_size=32, person=recipe.encode())
        for text in (self.origin.encode(), salt.encode()):
            hasher.update(len(text).to_bytes(8) + text)
        hasher.update(len(self.pieces).to_bytes(8))
        for piece in self.pieces:
            hasher.update(piece.entry.key + piece.offset.to_bytes(8))
        if self.parallel is not None:  # which pieces it is about follows from their keys
            hasher.update(self.parallel.ape.key)
        hasher.update(b"own" + self.start.to_bytes(8) + len(tokens).to_bytes(8))
        width = 4 if max(tokens, default=0) < 1 << 32 else 8  # ids of fakes are words
        for numbers in (tokens, feeds):
            hasher.update(b"".join(number.to_bytes(width) for number in numbers))
        return hasher.digest()


class WeightedAnchor(NamedTuple):
    """An anchor, in the prompt of its caller and as it is reused, and the weight of the offset between them."""

    real: ContextPiece
    base: ContextPiece
    weight: float


class EncodingRecipe(NamedTuple):
    """How the keys and values of `tokens` are computed over `context`: at once, or (`feeds` not empty) in forwards of
    these numbers of tokens.

    With a `base`, only the tokens at `places` are computed; the others are taken from the base. `choose` selected the
    places over the context that `judged` names. With `anchors` no token is computed: all are the base's, with the
    anchors' offsets added, and `judged` names the anchors. `way` and `feeds` are part of the key: an entry that was fed
    token by token keeps its key, however it is made again.
    """

    tokens: tuple[int, ...]
    context: CallContext
    salt: str
    way: Literal["whole", "stepwise"] = "whole"
    feeds: tuple[int, ...] = ()
    base: ContextPiece | None = None
    choose: Selection | None = None
    judged: bytes = b""
    places: tuple[int, ...] = ()
    anchors: tuple[WeightedAnchor, ...] = ()

    @property
    def key(self) -> bytes:
        """The key of the result."""
        fresh = self.context.key(self.tokens, self.salt, self.way, self.feeds)
        if self.base is None:
            return fresh
        assert self.choose is not None
        return repaired_key(fresh, self.base.entry.key, self.choose, self.judged)

    @property
    def sources(self) -> tuple[KVEntry, ...]:
        """All entries that the result is made from, each once."""
        base = () if self.base is None else (self.base,)
        return tuple(dict.fromkeys(piece.entry for piece in (*self.context.pieces, *base, *both(self.anchors))))

    def segment(self, entry: KVEntry) -> Segment:
        """The segment of one forward that computes the result into `entry`."""
        ids = self.tokens if self.base is None else [self.tokens[place] for place in self.places]
        start, pieces = self.context.start, (*self.context.pieces, *both(self.anchors))
        return Segment(
            ids,
            start,
            pieces,
            entry=entry,
            base=self.base,
            places=self.places,
            narrowing=narrowing(self.choose),
            adapter=self.context.adapter,
            parallel=self.context.parallel,
        )


def narrowing(choose: Selection | None) -> ByDeviation | None:
    """The selection, if it recomputes fewer tokens from layer to layer, else None."""
    return choose if isinstance(choose, ByDeviation) and choose.narrows else None


def beside(pieces: Sequence[ContextPiece]) -> Iterator[tuple[int, int]]:
    """The (start, stop), in tokens, of the pieces that were encoded side by side: all except common prefixes and
    messages over all others. Such an exception was encoded over exactly the pieces before it, where they stand here,
    and every later piece was encoded over it. The result depends on the keys of the pieces alone."""
    before = [_encoded_over(piece) for piece in pieces]
    here = [(piece.entry.key, piece.offset) for piece in pieces]
    end = 0
    for place, piece in enumerate(pieces):
        start, end = end, end + piece.entry.length
        after = all(over is not None and here[place] in over for over in before[place + 1 :])
        if not after or before[place] != set(here[:place]):
            yield start, end


def _encoded_over(piece: ContextPiece) -> set[tuple[bytes, int]] | None:
    """The keys and positions of the pieces that a piece was encoded over. None if it was moved since, or repaired."""
    recipe = piece.entry.recipe
    assert recipe is not None
    if piece.shift or recipe.base is not None:
        return None
    return {(other.entry.key, other.offset) for other in recipe.context.pieces}


def both(anchors: Iterable[WeightedAnchor]) -> tuple[ContextPiece, ...]:
    """The two pieces of each anchor, in order."""
    return tuple(piece for real, base, _ in anchors for piece in (real, base))


def anchors_key(anchors: Iterable[WeightedAnchor]) -> bytes:
    """A hash that names these anchors in a key: of their own keys, which include their contexts, and their weights."""
    parts = [real.entry.key + base.entry.key + weight.hex().encode() for real, base, weight in anchors]
    return hashlib.blake2b(b"".join(parts), digest_size=32, person=b"anchors").digest()


def in_common(new: Sequence[int], old: Sequence[int]) -> int:
    """The length of the common prefix of both, without the last id of `new`, because at least that one is fed."""
    pairs = zip(new[:-1], old, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(new) - 1, len(old)))


def repaired_key(fresh: bytes, base: bytes, choose: Selection, judged: bytes) -> bytes:
    """The key of a repaired encoding, from the key that it would have if all of it were recomputed (`fresh`), the key
    of its base, and how and over which context its tokens were chosen."""
    parts = fresh + base + judged + choose.tag.encode()
    return hashlib.blake2b(parts, digest_size=32, person=b"repaired").digest()


@dataclass(eq=False)
class Segment:
    """New tokens `ids`, the first at `position`, over `pieces`.

    With a `slot`, the pieces are gathered into the slot, and the tokens' own keys are appended there; `claims` are the
    shared runs that are gathered with it, of those that its slot reads in place. With an `entry`, their own keys go to
    its pages. `wanted`: the indices of its tokens whose next-token logits are requested.

    With a `base`, `ids` are the recomputed tokens of a message, at its indices `places`, and the others are those of
    the base. With a `narrowing` they become fewer from layer to layer, and `left` are the indices in `places` of those
    that the layer before had. The first `done` tokens of the message were encoded before, and are in `entry` already;
    `copied` of them are not in its slot yet.

    `row`: it continues a decode, with the last sampled token and the draft tokens after it. `adapter`: the digest of
    the adapter that its tokens go through, beside others in the same forward. `parallel`: which tokens of its pieces
    were encoded side by side, and how they are weighed; later segments of its slot find that there.
    """

    ids: Sequence[int]
    position: int
    pieces: Sequence[ContextPiece] = ()
    slot: Slot | None = None
    entry: KVEntry | None = None
    wanted: Sequence[int] = ()
    base: ContextPiece | None = None
    places: Sequence[int] = ()
    narrowing: ByDeviation | None = None
    left: Sequence[int] = ()
    done: int = 0
    copied: int = 0
    row: bool = False
    claims: Sequence[SharedRun] = ()
    adapter: str | None = None
    parallel: ParallelContext | None = None
    first: int = field(default=0, init=False)

    @property
    def sources(self) -> Iterator[KVEntry]:
        """The entries that are gathered for it or read where they are stored, and those of the runs that it claims."""
        stored = () if self.slot is None else self.slot.stored
        for pieces in (self.pieces, stored, *(run.pieces for run in self.claims)):
            yield from (piece.entry for piece in pieces)

    @property
    def alone(self) -> bool:
        """Whether it belongs to a decode or a shadow whose bits must not depend on other calls."""
        return self.slot is not None and self.entry is None and self.slot.alone

    @property
    def gathered(self) -> int:
        """The number of tokens that are gathered into its own slot."""
        return sum(piece.entry.length for piece in self.pieces) + self.copied

    @property
    def written(self) -> tuple[ContextPiece, int] | None:
        """The part of its own message that was encoded before and is not in its slot, as a piece, and the number of its
        tokens. None if there is no such part."""
        there = self.done if self.slot is None else self.copied
        if self.entry is None or not there:
            return None
        return ContextPiece(None, self.entry, self.entry.position), there

    @property
    def last(self) -> bool:
        """Whether it completes its message."""
        return self.entry is None or self.base is not None or self.done + len(self.ids) == self.entry.length

    @property
    def positions(self) -> Sequence[int]:
        """The position of each of its tokens."""
        if self.base is None:
            return range(self.position, self.position + len(self.ids))
        return [self.position + place for place in self.places]

    def span(self) -> slice:
        """The slice of its tokens in the packed row of the forward."""
        return slice(self.first, self.first + len(self.ids))


class Rules(NamedTuple):
    """The settings of one engine that layouts depend on: its `template`, the piece that every context begins with, the
    number of positions, and the name of its runner, which is part of every key. One for each `adapter` of calls."""

    template: FramingPort
    bos: ContextPiece | None
    limit: int
    origin: str = ""
    adapter: str | None = None


class Layout(NamedTuple):
    """The layout of a call.

    `framed`: its own ids. For a decode, those that are known before its first token; for a shadow or a repair none,
    because these take the ids of another message. `longest`: the maximum number of its tokens. `words`: the words of a
    prefill.
    """

    framed: FramedTokens
    context: CallContext
    longest: int
    words: Words | None = None


NOTHING = FramedTokens((), (), (), ())
Parents = Sequence[tuple[EncodingId, "KVEntry"]]


def layout(rules: Rules, call: Call, parents: Parents, own: int = 0) -> Layout:
    """Lay a call out over its resolved parents. Holds nothing. `own`: for a shadow or a repair, the number of tokens of
    the message that it takes its ids from.

    Raises `RequestError` if its offsets or its own ids are wrong, and `ContextOverflow` if it does not fit.
    """
    framed, words, more = NOTHING, None, own
    if isinstance(call, Prefill):
        words = whole(call.text, call.framed) if call.framed is not None else None
        words = words or encoded(rules.template, call.role, call.name, call.text, call.tokens, call.opening)
        more = len(words.tokens)
    elif isinstance(call, Decode):
        content = rules.template.content
        forced = () if call.forced is None else content.check(call.forced)
        for form in call.forms:
            content.check((*form.lead, *form.trail))
        framed = frame(rules.template, "assistant", call.name, content.encode(call.header), forced, answer=True)
        thinking, more = thinking_of(call, rules.template), 0
        if thinking is not None:  # the header comes after the thought
            more = len(framed.header) + _after_thought(call, thinking)
            ordinary = rules.template.opening("assistant", call.name)
            framed = framed._replace(opening=thinking.opening(ordinary), header=())
        framed = framed if call.opening is None else framed._replace(opening=call.opening)
        more += len(framed.tokens) + (call.sampling.max_tokens if call.forced is None else 0)
    begins = isinstance(call, Prefill | Decode) and call.begins
    context = place(rules._replace(bos=None) if begins else rules, parents, call.offsets, call.new_offset)
    if not isinstance(call, Repair) and call.ape is not None:
        context = context.weighed(call.ape)
    check_fits(context, more, rules.limit)
    return Layout(framed, context, more, words)


def thinking_of(call: Decode, template: FramingPort) -> ThinkingPort | None:
    """How the model thinks before the answer of a decode. None if it does not."""
    return (call.thinking or template.thinking) if call.thinks else None


def _after_thought(call: Decode, thinking: ThinkingPort) -> int:
    """The number of tokens that a decode with a thought may have beyond the limit of its sampling options."""
    if call.forced is not None:
        return 0
    marks = len(thinking.begins) + len(thinking.ends) + len(thinking.behind)
    return marks + (call.sampling.max_tokens if call.is_whole else 0)


def place(rules: Rules, parents: Parents, offsets: Offsets, new_offset: int | None) -> CallContext:
    """The context of a call: each parent and the new message at the requested position, at the one where it was encoded
    ("made"), or right after the message before it (None)."""
    if offsets == "made":
        offsets = [entry.position for _, entry in parents]
        ends = [entry.position + entry.length for _, entry in parents]
        new_offset = max(ends, default=None) if new_offset is None else new_offset
    asked = [None] * len(parents) if offsets is None else offsets
    if len(asked) != len(parents):
        raise RequestError.offsets(f"{len(asked)} offsets for {len(parents)} parents")
    pieces, end = ([], 0) if rules.bos is None else ([rules.bos], rules.bos.entry.length)
    for (id, entry), offset in zip(parents, asked, strict=True):
        start = end if offset is None else offset
        pieces.append(ContextPiece(id, entry, start))
        end = start + entry.length
    return CallContext(tuple(pieces), end if new_offset is None else new_offset, rules.origin, rules.adapter)


def check_fits(context: CallContext, own: int, limit: int) -> None:
    """Raise `ContextOverflow` if a parent, or the new message of `own` tokens, would go beyond the last of `limit`
    positions."""
    end = max([piece.offset + piece.entry.length for piece in context.pieces] + [context.start + own])
    if end > limit:
        raise ContextOverflow(end, limit)


def check_origin(id: EncodingId, entry: KVEntry, rules: Rules, base: str) -> None:
    """Raise `RequestError` if a call under these rules would read keys of an adapter other than its own. All calls may
    read keys of the base model; a call of the base model reads no others."""
    assert entry.recipe is not None
    if entry.recipe.context.origin not in (rules.origin, base):
        whose = "another adapter" if rules.adapter else "an adapter, and this call of none"
        raise RequestError.parents(
            f"encoding {id} is of {whose}; give encodings of the call's own adapter or of the base model"
        )
