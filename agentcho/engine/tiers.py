"""Where storages are: in the store, in host memory, or dropped to their recipes; and what has to move for others.

A storage is *held* as long as somebody may yet ask for it, and *pinned* while a call gathers or makes it. Pinned ones
stay in the store. The others leave it least recently used first: to host memory while that has room, where the oldest
copies give way, and from there to nothing but their recipe. Does not know: calls, how anything is made again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Iterable
from typing import NamedTuple

from agentcho.engine.base import Pool
from agentcho.engine.encoding import Storage
from agentcho.errors import StoreDamaged, StoreFull


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
        return Fullness(
            store.used, store.reserved, store.limit, store.page_tokens, store.high_water,
            self.host_used, self._host_limit, self._host_high_water, self.evicted, self.dropped, self.remade,
        )  # fmt: skip

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
