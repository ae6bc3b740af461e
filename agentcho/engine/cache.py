"""Keeps encodings: in the store, in host memory, or only as a recipe; and brings together in the store all that a call
gathers.

An entry is *held* while an id or a call can still ask for it, and *pinned* while a call gathers or makes it. Pinned
entries stay in the store. The others leave it when room is needed, the least recently used first: to host memory, where
the oldest copies make room for new ones, and from there to their recipe alone.

Whether all that a call gathers fits is settled before anything is moved, by counting pages. After that only a failing
forward or a damaged copy can stop it. An entry that is made again gathers exactly what it gathered the first time, so
its label stays true. Does not know: calls, guards, how a forward computes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from agentcho.calls.call import EncodingId, Receipt
from agentcho.engine.base import Pool, Row, Stored
from agentcho.engine.layout import Recipe, Segment, in_common
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


class Assembly:
    """Brings entries together in the store. `make(entry)` computes an entry into its pages by its recipe and returns
    the number of tokens fed. `fed`: the tokens that were fed so far to make dropped entries again."""

    def __init__(self, tiers: Tiers, make: Callable[[KVEntry], int]) -> None:
        self.tiers, self._make = tiers, make
        self._kept: list[KVEntry] = []
        self.fed = 0

    def keep(self, recipe: Recipe) -> KVEntry:
        """Make an entry and keep it in the store as long as the engine lives."""
        entry = KVEntry.of(recipe)
        self.tiers.hold([entry])
        self.tiers.pin(self, [entry])
        self.tiers.allocate(entry)
        self._make(entry)
        self._kept.append(entry)
        return entry

    def first(self, entry: KVEntry) -> None:
        """Make an entry for the first time, between two steps. Raises what `gathering` and a forward raise; the entry
        is not made then."""
        with self.gathering(entry.sources, entry):
            try:
                self._make(entry)
            except BaseException:
                self.tiers.discard(entry)
                raise

    def check(self, entries: Iterable[KVEntry], own: int, wide: int) -> None:
        """`StoreFull` where a call that gathers these entries and makes `own` tokens could never run. In the end it
        attends to `wide` tokens: an entry that it reads several times is gathered as often."""
        self.tiers.check((*entries, *self._kept), own, wide)

    def fits(self, entries: Sequence[KVEntry], own: int) -> bool:
        """Whether a call that gathers these entries and makes `own` tokens can begin now. That needs room for both at
        once, and before that for each dropped entry together with its sources."""
        tiers = self.tiers
        return tiers.fits(entries, own) and all(tiers.fits((*s.sources, s), 0) for s in lacking(entries))

    def copies(self, prefix: Prefix, entries: Sequence[KVEntry], own: int) -> int:
        """How many tokens a call that gathers these entries and makes `own` tokens can take over now: all that it
        begins with where these are in the store, and there is room beside them."""
        here = prefix.entry.pages is not None and self.fits((*entries, prefix.entry), own)
        return prefix.tokens if here else 0

    def begin(
        self, owner: Hashable, entries: Sequence[KVEntry], own: KVEntry | None = None, prefix: Prefix | None = None
    ) -> None:
        """Bring all of `entries` into the store, pinned for `owner` until `Tiers.unpin`, and give `own` its pages,
        pinned too, with what it has in common with a `prefix` that is in the store.

        They must fit (see `fits`). Raises what a forward raises, or `StoreDamaged`; nothing is pinned for `owner` then.
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
            begun = () if prefix is None else (prefix.entry,)
            self.tiers.pin(owner, (*entries, *begun) if own is None else (*entries, *begun, own))
            self.tiers.bring((*entries, *begun))
            if own is not None:
                self.tiers.allocate(own)
                if prefix is not None:
                    self.tiers.store.copy(prefix.entry.block, own.block, prefix.tokens)
        except BaseException:
            self.tiers.unpin(owner)
            raise
        finally:
            self.tiers.wanted = ()
            self.tiers.release(users)
            self.tiers.trim()

    @contextmanager
    def gathering(self, entries: Iterable[KVEntry], own: KVEntry | None = None) -> Iterator[None]:
        """For callers between two steps: have these entries in the store, and pages for `own`, until the end of the
        `with` block. `StoreFull`: running calls leave no room for them."""
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
        """Make a dropped entry again. None of its sources is dropped."""
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


def common(recipe: Recipe, known: KVEntry) -> Prefix | None:
    """What the result of `recipe` begins with as an entry does that is there already; at least its last token is fed.
    None: nothing, or the entry is of another context or class, or was put together or fed in another way."""
    other = known.recipe
    if other is None or other.base is not None or other.way != "whole" or not known.ready:
        return None
    if other.context.key((), other.salt, "whole") != recipe.context.key((), recipe.salt, "whole"):
        return None
    tokens = in_common(recipe.tokens, other.tokens)
    return Prefix(known, tokens) if tokens else None


def lacking(entries: Iterable[KVEntry]) -> list[KVEntry]:
    """The dropped ones among these entries, and among all entries that they would be made from, each after its
    sources."""
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
    """Count one use of each of `used`; returns the entries that no later one needs, which are taken out of `users`."""
    done = []
    for entry in used:
        users[entry] -= 1
        if not users[entry]:
            del users[entry]
            done.append(entry)
    return done
