"""Keeps encodings: in the store, in host memory, or only as a recipe.

An entry is *held* while an id or a call can still ask for it, and *pinned* while a call gathers or makes it. Pinned
entries stay in the store. The others leave it when room is needed, the least recently used first: to host memory, where
the oldest copies make room for new ones, and from there to their recipe alone. Does not know: calls, guards, how an
entry is made (again), which ones are needed together (`assembly`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agentcho.calls.call import EncodingId, Receipt
from agentcho.engine.base import Pool, Row, Stored
from agentcho.engine.layout import Recipe, Segment
from agentcho.errors import StoreDamaged, StoreFull
from agentcho.message import Words


@dataclass(eq=False)
class KVEntry:
    """The keys and values of `length` tokens. Calls with the same `key` (tokens, context, positions) share one entry.

    - `position`: where its first token was encoded. `written`: how many of its tokens were computed so far.
    - An entry that is `ready` was computed whole. It is in one of three tiers: in `pages` of the store, in a `host`
      copy, or dropped, to be made again by its `recipe`.
    - Before that, only segments of the forward that completes it (`segment`) can attend to it.
    - `holders`: how many ids, unfinished calls and (for the BOS) engines can still ask for it.
    - `digest`: the checksum of its content, once one was taken.
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
        """Whether all of its tokens were computed."""
        return self.written == self.length

    @property
    def attendable(self) -> bool:
        """Whether it was computed, or will be by the end of the forward that is being planned."""
        return self.ready or (self.segment is not None and self.segment.last)

    @property
    def block(self) -> Stored:
        """Its pages in the store. It must be there."""
        assert self.pages is not None
        return self.pages

    @property
    def dropped(self) -> bool:
        """Whether it was computed, and only its recipe is left."""
        return self.ready and self.pages is None and self.host is None

    @property
    def sources(self) -> tuple[KVEntry, ...]:
        """The entries that are gathered to make it, each once."""
        assert self.recipe is not None
        return self.recipe.sources

    @classmethod
    def of(cls, recipe: Recipe) -> KVEntry:
        """A new, empty entry for the result of `recipe`."""
        return cls(recipe.key, recipe.context.start, len(recipe.tokens), recipe)


class Prefix(NamedTuple):
    """An earlier state of a message, over the same context: its entry, and how many tokens both begin with."""

    entry: KVEntry
    tokens: int


@dataclass(eq=False)
class Encoding:
    """What one id names: its words, its receipt, and its entry, which other ids may share. `logits`: the kept rows
    `[vocab]`, where the decode asked for them."""

    id: EncodingId
    entry: KVEntry
    words: Words
    receipt: Receipt
    logits: Sequence[Row] = ()


class Fullness(NamedTuple):
    """How full the store is, in pages of `page_tokens`: used, promised to running calls and not yet written, allowed,
    and the most ever used. Then host memory, in tokens: used, allowed, the most ever used. Then what happened so far:
    encodings that left the store, that were dropped to their recipes, that were made again."""

    used: int
    reserved: int
    limit: int
    page_tokens: int
    high_water: int
    host_used: int
    host_limit: int
    host_high_water: int
    evicted: int
    dropped: int
    remade: int


class Tiers:
    """All entries of one store, and up to `host_limit` tokens of copies in host memory.

    `resident` (in the store) and `outside` (in host memory) are in the order of last use, the least recent first.
    Entries in `wanted` are never dropped: they go to host memory even beyond its limit.
    """

    def __init__(self, store: Pool, host_limit: int) -> None:
        self.store, self._host_limit = store, host_limit
        self.resident: dict[KVEntry, None] = {}
        self.outside: dict[KVEntry, None] = {}
        self.pins: dict[Hashable, tuple[KVEntry, ...]] = {}
        self.pinned: Counter[KVEntry] = Counter()
        self.wanted: Container[KVEntry] = ()
        self._pinned_pages = self.host_used = self._host_high_water = 0
        self.evicted = self.dropped = self.remade = 0

    @property
    def fullness(self) -> Fullness:
        """See `Fullness`."""
        store = self.store
        stored = (store.used, store.reserved, store.limit, store.page_tokens, store.high_water)
        copied = (self.host_used, self._host_limit, self._host_high_water)
        return Fullness(*stored, *copied, self.evicted, self.dropped, self.remade)

    # -- holding and pinning -----------------------------------------------------------------------------

    def hold(self, entries: Iterable[KVEntry]) -> None:
        """Count one more holder of each entry, as often as it is named."""
        for entry in entries:
            entry.holders += 1

    def release(self, entries: Iterable[KVEntry]) -> None:
        """Count one holder less of each entry. An entry without holders keeps its recipe alone, for the entries that
        were made from it."""
        for entry in entries:
            entry.holders -= 1
            assert entry.holders >= 0
            if entry.holders == 0:
                self.discard(entry)

    def discard(self, entry: KVEntry) -> None:
        """Give up an entry's pages and its copy."""
        self._leave(entry)
        self._forget_copy(entry)
        entry.segment = entry.digest = None

    def pin(self, owner: Hashable, entries: Iterable[KVEntry]) -> None:
        """Keep these entries where they are, and their pages promised, until `unpin(owner)`. An owner pins once."""
        assert owner not in self.pins
        self.pins[owner] = tuple(dict.fromkeys(entries))
        for entry in self.pins[owner]:
            self._pinned_pages += 0 if self.pinned[entry] else self._pages(entry)
            self.pinned[entry] += 1

    def unpin(self, owner: Hashable) -> None:
        """Let go of the entries that `owner` pinned; none: nothing happens."""
        for entry in self.pins.pop(owner, ()):
            self.pinned[entry] -= 1
            if not self.pinned[entry]:
                del self.pinned[entry]
                self._pinned_pages -= self._pages(entry)

    # -- room --------------------------------------------------------------------------------------------

    @property
    def available(self) -> int:
        """Pages that are neither pinned nor promised: they are free, or can be freed."""
        return self.store.limit - self.store.reserved - self._pinned_pages

    def fits(self, entries: Iterable[KVEntry], own: int) -> bool:
        """Whether these entries and `own` more tokens can be in the store at the same time, beside all that is pinned
        and promised."""
        asked = {entry for entry in entries if not self.pinned[entry]}
        return sum(map(self._pages, asked)) + self.store.pages_for(own) <= self.available

    def check(self, entries: Iterable[KVEntry], own: int, wide: int) -> None:
        """`StoreFull` where these entries and `own` more tokens do not fit even in an empty store, or where `wide`
        tokens do not."""
        pages = max(sum(map(self._pages, set(entries))) + self.store.pages_for(own), self.store.pages_for(wide))
        if pages > self.store.limit:
            raise StoreFull(pages * self.store.page_tokens, self.store.limit * self.store.page_tokens)

    def reserve(self, tokens: int) -> int:
        """Promise pages for `tokens` tokens; returns their number. Unpinned entries may have to leave the store."""
        self._make_room(self.store.pages_for(tokens))
        return self.store.reserve(tokens)

    def allocate(self, entry: KVEntry) -> None:
        """Give an entry its pages, to be written next. Unpinned entries may have to leave the store."""
        self._make_room(self._pages(entry))
        entry.pages = self.store.allocate(entry.length)
        self.resident[entry] = None

    # -- moving ------------------------------------------------------------------------------------------

    def bring(self, entries: Iterable[KVEntry]) -> None:
        """Copy those of these entries that are in host memory back into the store, and note that all of them are in
        use. They must be pinned, and none dropped. `StoreDamaged`: a copy is not what it was."""
        for entry in entries:
            if entry.host is not None:
                if self.store.checksum(entry.host) != entry.digest:
                    self.drop(entry)  # the next call that reads it encodes it again
                    raise StoreDamaged("a copy in host memory has changed")
                self.allocate(entry)
                self.store.copy_in(entry.block, entry.host)
                self._forget_copy(entry)
            assert entry.pages is not None
            del self.resident[entry]
            self.resident[entry] = None

    def move_out(self, entry: KVEntry) -> None:
        """Move an entry out of the store: to host memory if there is room, else it is dropped. `StoreDamaged`: its
        content is not what it was."""
        self.evicted += 1
        if entry in self.wanted or self._room_outside(entry.length):
            copy = self.store.copy_out(entry.block)
            digest = self.store.checksum(copy)
            if entry.digest not in (None, digest):
                raise StoreDamaged("keys or values in the store have changed")
            entry.host, entry.digest = copy, digest
            self.outside[entry] = None
            self.host_used += entry.length
            self._host_high_water = max(self._host_high_water, self.host_used)
            self._leave(entry)
        else:
            self.drop(entry)

    def drop(self, entry: KVEntry) -> None:
        """Drop an entry: keep its recipe alone."""
        self.dropped += 1
        self.discard(entry)

    def swap_out(self, entries: Iterable[KVEntry]) -> None:
        """Move those of these entries out of the store that are not pinned."""
        for entry in dict.fromkeys(entries):
            if entry.pages is not None and not self.pinned[entry]:
                self.move_out(entry)

    def trim(self, bound: int | None = None) -> None:
        """Drop the oldest copies until no more than `bound` tokens (None: the limit) are in host memory."""
        bound = self._host_limit if bound is None else bound
        for entry in list(self.outside) if self.host_used > bound else ():
            if self.host_used <= bound:
                return
            if entry not in self.wanted:
                self.drop(entry)

    def _pages(self, entry: KVEntry) -> int:
        return self.store.pages_for(entry.length)

    def _make_room(self, pages: int) -> None:
        while self.store.room < pages:
            victim = next((entry for entry in self.resident if not self.pinned[entry]), None)
            if victim is None:
                raise StoreFull(pages * self.store.page_tokens, self.store.room * self.store.page_tokens)
            self.move_out(victim)

    def _room_outside(self, tokens: int) -> bool:
        if tokens > self._host_limit:
            return False
        self.trim(self._host_limit - tokens)
        return self.host_used + tokens <= self._host_limit

    def _leave(self, entry: KVEntry) -> None:
        if entry.pages is not None:
            del self.resident[entry]
            self.store.free(entry.pages)
            entry.pages = None

    def _forget_copy(self, entry: KVEntry) -> None:
        if entry.host is not None:
            del self.outside[entry]
            self.host_used -= entry.length
            entry.host = None
