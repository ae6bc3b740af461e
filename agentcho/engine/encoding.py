"""Encodings as the engine keeps them, the pieces of a context, and the segments that make them.

Does not know: where a call stands (`layout`), how keys are made or attended to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from agentcho.calls.call import ContextEntry, EncodingId, First, Most, Receipt
from agentcho.engine.base import Row, SharedContext, Slot, Stored
from agentcho.message import Words


@dataclass(eq=False)
class Storage:
    """Keys and values of `length` tokens. Equal `key`s (tokens, context, positions) share one storage.

    `position` is where its first token was encoded, `written` how many of its tokens were. Once `ready` all of it was
    made, and is in one of three tiers: in `pages` of the store, in a `host` copy, or dropped, to be made again by its
    `recipe`. Until then only segments of the forward that completes it (`segment`) can attend to it. `holders` counts
    who may yet ask for it: ids, calls in flight, the BOS. `digest` is the checksum of its content, once one was taken.
    """

    key: bytes
    position: int
    length: int
    recipe: Recipe | None = field(default=None, repr=False)
    pages: Stored | None = field(default=None, repr=False)
    host: Stored | None = field(default=None, repr=False)
    written: int = 0
    segment: Segment | None = field(default=None, repr=False)
    holders: int = 0
    digest: int | None = None

    @property
    def ready(self) -> bool:
        """All of it was made."""
        return self.written == self.length

    @property
    def attendable(self) -> bool:
        """It was made, or will be when the forward that is being planned is over."""
        return self.ready or (self.segment is not None and self.segment.last)

    @property
    def block(self) -> Stored:
        """Its pages; it must be in the store."""
        assert self.pages is not None
        return self.pages

    @property
    def dropped(self) -> bool:
        """It was made, and its recipe alone is left."""
        return self.ready and self.pages is None and self.host is None

    @property
    def sources(self) -> tuple[Storage, ...]:
        """What is gathered to make it, each once."""
        assert self.recipe is not None
        return self.recipe.sources


@dataclass(eq=False)
class Encoding:
    """One id: its words and receipt, and the storage that it may share with other ids.

    `logits` are the kept rows `[vocab]`, where a decode asked for them.
    """

    id: EncodingId
    storage: Storage
    words: Words
    receipt: Receipt
    logits: Sequence[Row] = ()


class Piece(NamedTuple):
    """One encoding as a context places it: its first token at position `offset`. `id` None is the BOS."""

    id: EncodingId | None
    storage: Storage
    offset: int

    @property
    def shift(self) -> int:
        """By how many positions its keys turn."""
        return self.offset - self.storage.position


@dataclass(eq=False)
class Segment:
    """New tokens `ids` at `position`, over `pieces`.

    With a `slot`, pieces are gathered into it and own keys appended; where it has a shared context, they are gathered
    there. Own keys go to `storage`'s block, if there is one. `wanted` are the own token indices whose next-token logits
    are asked for. With a `base`, `ids` are those tokens of a message that are encoded anew, at its indices `places`;
    the others are the base's. The first `done` tokens of the message were encoded before, and are in `storage` already.
    """

    ids: Sequence[int]
    position: int
    pieces: Sequence[Piece] = ()
    slot: Slot | None = None
    storage: Storage | None = None
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
        return 0 if self.shared is not None else sum(piece.storage.length for piece in self.pieces)

    @property
    def written(self) -> tuple[Piece, int] | None:
        """What is to be gathered of its own message, where that is not in its slot, and how many tokens that is."""
        if self.storage is None or not self.done or self.slot is not None:
            return None
        return Piece(None, self.storage, self.storage.position), self.done

    @property
    def last(self) -> bool:
        """Whether nothing of its message is left when it is done."""
        return self.storage is None or self.base is not None or self.done + len(self.ids) == self.storage.length

    @property
    def positions(self) -> Sequence[int]:
        """Of its tokens, one by one."""
        if self.base is None:
            return range(self.position, self.position + len(self.ids))
        return [self.position + place for place in self.places]

    def span(self) -> slice:
        """Where its tokens stand in the packed row."""
        return slice(self.first, self.first + len(self.ids))


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
        entries = tuple(ContextEntry(p.id, p.offset, p.storage.length) for p in self.pieces if p.id is not None)
        return Receipt(entries, self.start, any(p.id is None for p in self.pieces))

    @property
    def length(self) -> int:
        """Tokens of context."""
        return sum(piece.storage.length for piece in self.pieces)

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
            hasher.update(piece.storage.key + piece.offset.to_bytes(8))
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
        return fresh if self.base is None else repaired_key(fresh, self.base.storage.key, self.choose, self.judged)

    @property
    def sources(self) -> tuple[Storage, ...]:
        """All that it is made from, each once."""
        base = () if self.base is None else (self.base,)
        return tuple(dict.fromkeys(piece.storage for piece in (*self.context.pieces, *base)))

    def storage(self) -> Storage:
        """A storage that it can be made into; nothing is made."""
        return Storage(self.key, self.context.start, len(self.tokens), self)

    def segment(self, storage: Storage) -> Segment:
        """One forward's work, into `storage`."""
        ids = self.tokens if self.base is None else [self.tokens[place] for place in self.places]
        start, pieces = self.context.start, self.context.pieces
        return Segment(ids, start, pieces, storage=storage, base=self.base, places=self.places)


def repaired_key(fresh: bytes, base: bytes, choose: object, judged: bytes) -> bytes:
    """A hash that names a repaired encoding: by what it would be anew, what it keeps, and how and over what its tokens
    are chosen."""
    parts = fresh + base + judged + repr(choose).encode()
    return hashlib.blake2b(parts, digest_size=32, person=b"repaired").digest()
