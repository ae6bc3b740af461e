"""Where encodings are kept: in the store, in host memory, or dropped to their recipes; what has to move for others, and
how what a call gathers is brought together.

An entry is *held* as long as somebody may yet ask for it, and *pinned* while a call gathers or makes it. Pinned ones
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
class KVEntry:
    """Keys and values of `length` tokens. Equal `key`s (tokens, context, positions) share one entry.

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
    def sources(self) -> tuple[KVEntry, ...]:
        """What is gathered to make it, each once."""
        assert self.recipe is not None
        return self.recipe.sources

    @classmethod
    def of(cls, recipe: Recipe) -> KVEntry:
        """One that `recipe` can be made into; nothing is made."""
        return cls(recipe.key, recipe.context.start, len(recipe.tokens), recipe)


@dataclass(eq=False)
class Encoding:
    """One id: its words and receipt, and the entry that it may share with other ids.

    `logits` are the kept rows `[vocab]`, where a decode asked for them.
    """

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
    """All entries of one store, and up to `host_limit` tokens of copies. `resident` and `outside` are in order of last
    use, the least recent first. What is in `wanted` is never dropped: it goes to host memory beyond the limit."""

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
        """Count one more holder of each, as often as it is named."""
        for entry in entries:
            entry.holders += 1

    def release(self, entries: Iterable[KVEntry]) -> None:
        """Count one holder less of each; the last one leaves it its recipe alone, for what was made from it."""
        for entry in entries:
            entry.holders -= 1
            assert entry.holders >= 0
            if entry.holders == 0:
                self.discard(entry)

    def discard(self, entry: KVEntry) -> None:
        """Give up its pages and its copy."""
        self._leave(entry)
        self._forget_copy(entry)
        entry.segment = entry.digest = None

    def pin(self, owner: Hashable, entries: Iterable[KVEntry]) -> None:
        """Keep these where they are, and their pages promised, until `unpin(owner)`. One set of pins an owner."""
        assert owner not in self.pins
        self.pins[owner] = tuple(dict.fromkeys(entries))
        for entry in self.pins[owner]:
            self._pinned_pages += 0 if self.pinned[entry] else self._pages(entry)
            self.pinned[entry] += 1

    def unpin(self, owner: Hashable) -> None:
        """Let go of what it pinned; nothing, where it has no pins."""
        for entry in self.pins.pop(owner, ()):
            self.pinned[entry] -= 1
            if not self.pinned[entry]:
                del self.pinned[entry]
                self._pinned_pages -= self._pages(entry)

    # -- room --------------------------------------------------------------------------------------------

    @property
    def available(self) -> int:
        """Pages that are neither pinned nor promised: free, or to be had."""
        return self.store.limit - self.store.reserved - self._pinned_pages

    def fits(self, entries: Iterable[KVEntry], own: int) -> bool:
        """Whether these and `own` tokens more could be in the store at once, beside what is pinned and promised."""
        asked = {entry for entry in entries if not self.pinned[entry]}
        return sum(map(self._pages, asked)) + self.store.pages_for(own) <= self.available

    def check(self, entries: Iterable[KVEntry], own: int, wide: int) -> None:
        """`StoreFull` where these and `own` tokens more do not fit in an empty store, or `wide` tokens are more than it
        holds."""
        pages = max(sum(map(self._pages, set(entries))) + self.store.pages_for(own), self.store.pages_for(wide))
        if pages > self.store.limit:
            raise StoreFull(pages * self.store.page_tokens, self.store.limit * self.store.page_tokens)

    def reserve(self, tokens: int) -> int:
        """Promise pages for `tokens` tokens; others may have to leave. Returns the pages."""
        self._make_room(self.store.pages_for(tokens))
        return self.store.reserve(tokens)

    def allocate(self, entry: KVEntry) -> None:
        """Give an entry its pages, to be written next; others may have to leave."""
        self._make_room(self._pages(entry))
        entry.pages = self.store.allocate(entry.length)
        self.resident[entry] = None

    # -- moving ------------------------------------------------------------------------------------------

    def bring(self, entries: Iterable[KVEntry]) -> None:
        """Copy back what is in host memory, and note that all of these are in use. They are pinned, none is dropped.

        `StoreDamaged`: a copy is not what it was."""
        for entry in entries:
            if entry.host is not None:
                if self.store.checksum(entry.host) != entry.digest:
                    self.drop(entry)  # who reads it next makes it again
                    raise StoreDamaged("a copy in host memory has changed")
                self.allocate(entry)
                self.store.copy_in(entry.block, entry.host)
                self._forget_copy(entry)
            assert entry.pages is not None
            del self.resident[entry]
            self.resident[entry] = None

    def move_out(self, entry: KVEntry) -> None:
        """Out of the store: to host memory if it has room, else dropped. `StoreDamaged`: it is not what it was."""
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
        """Leave it its recipe alone."""
        self.dropped += 1
        self.discard(entry)

    def swap_out(self, entries: Iterable[KVEntry]) -> None:
        """Move out those that nobody pins; the rest stay."""
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


class Assembly:
    """`make(entry)` computes an entry into its pages by its recipe, and returns the tokens it fed. `fed` counts all
    tokens that were fed to make dropped entries again."""

    def __init__(self, tiers: Tiers, make: Callable[[KVEntry], int]) -> None:
        self.tiers, self._make = tiers, make
        self._kept: list[KVEntry] = []
        self.fed = 0

    def keep(self, recipe: Recipe) -> KVEntry:
        """Make an entry and keep it in the store for good."""
        entry = KVEntry.of(recipe)
        self.tiers.hold([entry])
        self.tiers.pin(self, [entry])
        self.tiers.allocate(entry)
        self._make(entry)
        self._kept.append(entry)
        return entry

    def first(self, entry: KVEntry) -> None:
        """Make an entry for the first time, between steps. Raises what `gathering` and a forward raise; then it is not
        made."""
        with self.gathering(entry.sources, entry):
            try:
                self._make(entry)
            except BaseException:
                self.tiers.discard(entry)
                raise

    def check(self, entries: Iterable[KVEntry], own: int, wide: int) -> None:
        """`StoreFull` where a call that gathers these and makes `own` tokens could never run. It attends to `wide`
        tokens in the end: what it reads several times is gathered so often."""
        self.tiers.check((*entries, *self._kept), own, wide)

    def fits(self, entries: Sequence[KVEntry], own: int) -> bool:
        """Whether a call that gathers these and makes `own` tokens can begin now: both they, and on the way there each
        dropped one together with what it is made from, fit beside what is pinned and promised."""
        tiers = self.tiers
        return tiers.fits(entries, own) and all(tiers.fits((*s.sources, s), 0) for s in lacking(entries))

    def begin(self, owner: Hashable, entries: Sequence[KVEntry], own: KVEntry | None = None) -> None:
        """Have all of `entries` in the store, pinned for `owner` until `Tiers.unpin`, and pages for `own`, pinned too.

        They must fit. Raises what a forward raises, or `StoreDamaged`; then nothing is pinned for `owner`.
        """
        dropped = lacking(entries)
        users = Counter(entries)
        for entry in dropped:
            users.update(entry.sources)
        self.tiers.hold(users)
        self.tiers.wanted = users
        try:
            for entry in dropped:
                self._again(entry)
                self.tiers.release(_used_up(users, entry.sources))
            self.tiers.pin(owner, entries if own is None else (*entries, own))
            self.tiers.bring(entries)
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
    def gathering(self, entries: Iterable[KVEntry], own: KVEntry | None = None) -> Iterator[None]:
        """Have these in the store meanwhile, and pages for `own`, for who asks between steps; `StoreFull` where running
        calls leave no room for them."""
        owner, asked = object(), list(entries)
        made = 0 if own is None else own.length
        if not self.fits(asked, made):
            ways = [_tokens(asked) + made, *(_tokens((*s.sources, s)) for s in lacking(asked))]
            raise StoreFull(max(ways), self.tiers.available * self.tiers.store.page_tokens)
        self.begin(owner, asked, own)
        try:
            yield
        finally:
            self.tiers.unpin(owner)

    def _again(self, entry: KVEntry) -> None:
        """Make one again, over its sources, none of which is dropped."""
        self.tiers.pin(entry, (*entry.sources, entry))
        try:
            self.tiers.bring(entry.sources)
            self.tiers.allocate(entry)
            self.fed += self._make(entry)
        except BaseException:
            self.tiers.discard(entry)
            raise
        finally:
            self.tiers.unpin(entry)
        self.tiers.remade += 1


def lacking(entries: Iterable[KVEntry]) -> list[KVEntry]:
    """What is dropped of these, and of all that these would be made from, each after what it is made from."""
    order: dict[KVEntry, None] = {}
    left = [(entry, False) for entry in entries]
    while left:
        entry, ready = left.pop()
        if entry in order or not entry.dropped:
            continue
        if ready:
            order[entry] = None
        else:
            left.append((entry, True))
            left += [(source, False) for source in entry.sources]
    return list(order)


def _tokens(entries: Iterable[KVEntry]) -> int:
    return sum(entry.length for entry in set(entries))


def _used_up(users: Counter[KVEntry], used: Iterable[KVEntry]) -> list[KVEntry]:
    """Count one use of each; those that nobody needs any more are taken out, and returned."""
    done = []
    for entry in used:
        users[entry] -= 1
        if not users[entry]:
            del users[entry]
            done.append(entry)
    return done
