"""Where encodings are kept: in the store, in host memory, or dropped to their recipes; what has to move for others, and
how what a call gathers is brought together.

A storage is *held* as long as somebody may yet ask for it, and *pinned* while a call gathers or makes it. Pinned ones
stay in the store. The others leave it least recently used first: to host memory while that has room, where the oldest
copies give way, and from there to nothing but their recipe.

Whether all that a call gathers can be brought together is settled first, by counting pages; then nothing but a failing
forward or a damaged copy stops it. What is made again gathers what it gathered when it was first made, and nothing
else, so no label changes. Does not know: calls, guards, how a forward computes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from agentcho.calls.call import EncodingId, Receipt
from agentcho.engine.base import Pool, Row, Stored
from agentcho.engine.layout import Recipe, Segment
from agentcho.errors import StoreDamaged, StoreFull
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

    @classmethod
    def of(cls, recipe: Recipe) -> Storage:
        """One that `recipe` can be made into; nothing is made."""
        return cls(recipe.key, recipe.context.start, len(recipe.tokens), recipe)


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
    """All storages of one store, and up to `host_limit` tokens of copies. `resident` and `outside` are in order of last
    use, the least recent first. What is in `wanted` is never dropped: it goes to host memory beyond the limit."""

    def __init__(self, store: Pool, host_limit: int) -> None:
        self.store, self._host_limit = store, host_limit
        self.resident: dict[Storage, None] = {}
        self.outside: dict[Storage, None] = {}
        self.pins: dict[Hashable, tuple[Storage, ...]] = {}
        self.pinned: Counter[Storage] = Counter()
        self.wanted: Container[Storage] = ()
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

    def hold(self, storages: Iterable[Storage]) -> None:
        """Count one more holder of each, as often as it is named."""
        for storage in storages:
            storage.holders += 1

    def release(self, storages: Iterable[Storage]) -> None:
        """Count one holder less of each; the last one leaves it its recipe alone, for what was made from it."""
        for storage in storages:
            storage.holders -= 1
            assert storage.holders >= 0
            if storage.holders == 0:
                self.discard(storage)

    def discard(self, storage: Storage) -> None:
        """Give up its pages and its copy."""
        self._leave(storage)
        self._forget_copy(storage)
        storage.segment = storage.digest = None

    def pin(self, owner: Hashable, storages: Iterable[Storage]) -> None:
        """Keep these where they are, and their pages promised, until `unpin(owner)`. One set of pins an owner."""
        assert owner not in self.pins
        self.pins[owner] = tuple(dict.fromkeys(storages))
        for storage in self.pins[owner]:
            self._pinned_pages += 0 if self.pinned[storage] else self._pages(storage)
            self.pinned[storage] += 1

    def unpin(self, owner: Hashable) -> None:
        """Let go of what it pinned; nothing, where it has no pins."""
        for storage in self.pins.pop(owner, ()):
            self.pinned[storage] -= 1
            if not self.pinned[storage]:
                del self.pinned[storage]
                self._pinned_pages -= self._pages(storage)

    # -- room --------------------------------------------------------------------------------------------

    @property
    def available(self) -> int:
        """Pages that are neither pinned nor promised: free, or to be had."""
        return self.store.limit - self.store.reserved - self._pinned_pages

    def fits(self, storages: Iterable[Storage], own: int) -> bool:
        """Whether these and `own` tokens more could be in the store at once, beside what is pinned and promised."""
        asked = {storage for storage in storages if not self.pinned[storage]}
        return sum(map(self._pages, asked)) + self.store.pages_for(own) <= self.available

    def check(self, storages: Iterable[Storage], own: int, wide: int) -> None:
        """`StoreFull` where these and `own` tokens more do not fit in an empty store, or `wide` tokens are more than it
        holds."""
        pages = max(sum(map(self._pages, set(storages))) + self.store.pages_for(own), self.store.pages_for(wide))
        if pages > self.store.limit:
            raise StoreFull(pages * self.store.page_tokens, self.store.limit * self.store.page_tokens)

    def reserve(self, tokens: int) -> int:
        """Promise pages for `tokens` tokens; others may have to leave. Returns the pages."""
        self._make_room(self.store.pages_for(tokens))
        return self.store.reserve(tokens)

    def allocate(self, storage: Storage) -> None:
        """Give a storage its pages, to be written next; others may have to leave."""
        self._make_room(self._pages(storage))
        storage.pages = self.store.allocate(storage.length)
        self.resident[storage] = None

    # -- moving ------------------------------------------------------------------------------------------

    def bring(self, storages: Iterable[Storage]) -> None:
        """Copy back what is in host memory, and note that all of these are in use. They are pinned, none is dropped.

        `StoreDamaged`: a copy is not what it was."""
        for storage in storages:
            if storage.host is not None:
                if self.store.checksum(storage.host) != storage.digest:
                    self.drop(storage)  # who reads it next makes it again
                    raise StoreDamaged("a copy in host memory has changed")
                self.allocate(storage)
                self.store.copy_in(storage.block, storage.host)
                self._forget_copy(storage)
            assert storage.pages is not None
            del self.resident[storage]
            self.resident[storage] = None

    def move_out(self, storage: Storage) -> None:
        """Out of the store: to host memory if it has room, else dropped. `StoreDamaged`: it is not what it was."""
        self.evicted += 1
        if storage in self.wanted or self._room_outside(storage.length):
            copy = self.store.copy_out(storage.block)
            digest = self.store.checksum(copy)
            if storage.digest not in (None, digest):
                raise StoreDamaged("keys or values in the store have changed")
            storage.host, storage.digest = copy, digest
            self.outside[storage] = None
            self.host_used += storage.length
            self._host_high_water = max(self._host_high_water, self.host_used)
            self._leave(storage)
        else:
            self.drop(storage)

    def drop(self, storage: Storage) -> None:
        """Leave it its recipe alone."""
        self.dropped += 1
        self.discard(storage)

    def swap_out(self, storages: Iterable[Storage]) -> None:
        """Move out those that nobody pins; the rest stay."""
        for storage in dict.fromkeys(storages):
            if storage.pages is not None and not self.pinned[storage]:
                self.move_out(storage)

    def trim(self, bound: int | None = None) -> None:
        """Drop the oldest copies until no more than `bound` tokens (None: the limit) are in host memory."""
        bound = self._host_limit if bound is None else bound
        for storage in list(self.outside) if self.host_used > bound else ():
            if self.host_used <= bound:
                return
            if storage not in self.wanted:
                self.drop(storage)

    def _pages(self, storage: Storage) -> int:
        return self.store.pages_for(storage.length)

    def _make_room(self, pages: int) -> None:
        while self.store.room < pages:
            victim = next((storage for storage in self.resident if not self.pinned[storage]), None)
            if victim is None:
                raise StoreFull(pages * self.store.page_tokens, self.store.room * self.store.page_tokens)
            self.move_out(victim)

    def _room_outside(self, tokens: int) -> bool:
        if tokens > self._host_limit:
            return False
        self.trim(self._host_limit - tokens)
        return self.host_used + tokens <= self._host_limit

    def _leave(self, storage: Storage) -> None:
        if storage.pages is not None:
            del self.resident[storage]
            self.store.free(storage.pages)
            storage.pages = None

    def _forget_copy(self, storage: Storage) -> None:
        if storage.host is not None:
            del self.outside[storage]
            self.host_used -= storage.length
            storage.host = None


class Assembly:
    """`make(storage)` computes a storage into its pages by its recipe, and returns the tokens it fed. `fed` counts all
    tokens that were fed to make dropped storages again."""

    def __init__(self, tiers: Tiers, make: Callable[[Storage], int]) -> None:
        self.tiers, self._make = tiers, make
        self._kept: list[Storage] = []
        self.fed = 0

    def keep(self, recipe: Recipe) -> Storage:
        """Make a storage and keep it in the store for good."""
        storage = Storage.of(recipe)
        self.tiers.hold([storage])
        self.tiers.pin(self, [storage])
        self.tiers.allocate(storage)
        self._make(storage)
        self._kept.append(storage)
        return storage

    def first(self, storage: Storage) -> None:
        """Make a storage for the first time, between steps. Raises what `gathering` and a forward raise; then it is not
        made."""
        with self.gathering(storage.sources, storage):
            try:
                self._make(storage)
            except BaseException:
                self.tiers.discard(storage)
                raise

    def check(self, storages: Iterable[Storage], own: int, wide: int) -> None:
        """`StoreFull` where a call that gathers these and makes `own` tokens could never run. It attends to `wide`
        tokens in the end: what it reads several times is gathered so often."""
        self.tiers.check((*storages, *self._kept), own, wide)

    def fits(self, storages: Sequence[Storage], own: int) -> bool:
        """Whether a call that gathers these and makes `own` tokens can begin now: both they, and on the way there each
        dropped one together with what it is made from, fit beside what is pinned and promised."""
        tiers = self.tiers
        return tiers.fits(storages, own) and all(tiers.fits((*s.sources, s), 0) for s in lacking(storages))

    def begin(self, owner: Hashable, storages: Sequence[Storage], own: Storage | None = None) -> None:
        """Have all of `storages` in the store, pinned for `owner` until `Tiers.unpin`, and pages for `own`, pinned too.

        They must fit. Raises what a forward raises, or `StoreDamaged`; then nothing is pinned for `owner`.
        """
        dropped = lacking(storages)
        users = Counter(storages)
        for storage in dropped:
            users.update(storage.sources)
        self.tiers.hold(users)
        self.tiers.wanted = users
        try:
            for storage in dropped:
                self._again(storage)
                self.tiers.release(_used_up(users, storage.sources))
            self.tiers.pin(owner, storages if own is None else (*storages, own))
            self.tiers.bring(storages)
            if own is not None:
                self.tiers.allocate(own)
        except BaseException:
            self.tiers.unpin(owner)
            raise
        finally:
            self.tiers.wanted = ()
            self.tiers.release(users)
            self.tiers.trim()

    @contextmanager
    def gathering(self, storages: Iterable[Storage], own: Storage | None = None) -> Iterator[None]:
        """Have these in the store meanwhile, and pages for `own`, for who asks between steps; `StoreFull` where running
        calls leave no room for them."""
        owner, asked = object(), list(storages)
        made = 0 if own is None else own.length
        if not self.fits(asked, made):
            ways = [_tokens(asked) + made, *(_tokens((*s.sources, s)) for s in lacking(asked))]
            raise StoreFull(max(ways), self.tiers.available * self.tiers.store.page_tokens)
        self.begin(owner, asked, own)
        try:
            yield
        finally:
            self.tiers.unpin(owner)

    def _again(self, storage: Storage) -> None:
        """Make one again, over its sources, none of which is dropped."""
        self.tiers.pin(storage, (*storage.sources, storage))
        try:
            self.tiers.bring(storage.sources)
            self.tiers.allocate(storage)
            self.fed += self._make(storage)
        except BaseException:
            self.tiers.discard(storage)
            raise
        finally:
            self.tiers.unpin(storage)
        self.tiers.remade += 1


def lacking(storages: Iterable[Storage]) -> list[Storage]:
    """What is dropped of these, and of all that these would be made from, each after what it is made from."""
    order: dict[Storage, None] = {}
    left = [(storage, False) for storage in storages]
    while left:
        storage, ready = left.pop()
        if storage in order or not storage.dropped:
            continue
        if ready:
            order[storage] = None
        else:
            left.append((storage, True))
            left += [(source, False) for source in storage.sources]
    return list(order)


def _tokens(storages: Iterable[Storage]) -> int:
    return sum(storage.length for storage in set(storages))


def _used_up(users: Counter[Storage], used: Iterable[Storage]) -> list[Storage]:
    """Count one use of each; those that nobody needs any more are taken out, and returned."""
    done = []
    for storage in used:
        users[storage] -= 1
        if not users[storage]:
            del users[storage]
            done.append(storage)
    return done
