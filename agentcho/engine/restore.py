"""Restores to the store all entries that a call gathers: moved-out entries are copied back, dropped ones made again.

Pages are counted before anything is moved, to check that all of it fits. After that only a failing forward or a damaged
copy in memory can stop it; an entry that is damaged on disk is dropped, and the restore starts over. An entry that is
made again gathers exactly what it gathered the first time, so its label stays true. Independent of calls and guards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from agentcho.engine.cache import SharedPrefix, TieredCache
from agentcho.engine.call_layout import EncodingRecipe, KVEntry, in_common
from agentcho.errors import StoreDamaged, StoreFull


class CacheRestorer:
    """Restores entries to the store. `make(entry)` computes an entry into its pages by its recipe and returns the
    number of tokens fed. `fed`: the number of tokens fed so far to make dropped entries again."""

    def __init__(self, tiers: TieredCache, make: Callable[[KVEntry], int]) -> None:
        self.tiers, self._make = tiers, make
        self._kept: list[KVEntry] = []
        self.fed = 0

    def keep(self, recipe: EncodingRecipe) -> KVEntry:
        """Make an entry and keep it in the store as long as the engine lives."""
        entry = KVEntry.of(recipe)
        self.tiers.hold([entry])
        self.tiers.pin(entry, [entry])
        self.tiers.allocate(entry)
        self._make(entry)
        self._kept.append(entry)
        return entry

    def first(self, entry: KVEntry) -> None:
        """Make an entry for the first time, between two steps. Raises what `gathering` and a forward raise; the entry
        is then not made."""
        with self.gathering(entry.sources, entry):
            try:
                self._make(entry)
            except BaseException:
                self.tiers.discard(entry)
                raise

    def check(self, entries: Iterable[KVEntry], own: int, wide: int) -> None:
        """Raise `StoreFull` if a call that gathers these entries and makes `own` tokens could never run. In the end it
        attends to `wide` tokens: an entry that it reads several times is gathered as often."""
        self.tiers.check((*entries, *self._kept), own, wide)

    def fits(self, entries: Sequence[KVEntry], own: int) -> bool:
        """Whether a call that gathers these entries and makes `own` tokens can begin now. That needs room for both at
        once, and before that for each dropped entry with its sources."""
        tiers = self.tiers
        return tiers.fits(entries, own) and all(tiers.fits((*s.sources, s), 0) for s in missing_entries(entries))

    def copies(self, prefix: SharedPrefix, entries: Sequence[KVEntry], own: int) -> int:
        """The number of tokens that a call that gathers these entries and makes `own` tokens can copy now: the whole
        prefix if it is in the store and leaves enough room, else 0."""
        here = prefix.entry.pages is not None and self.fits((*entries, prefix.entry), own)
        return prefix.tokens if here else 0

    def expect(self, entries: Sequence[KVEntry]) -> None:
        """Have the system read ahead all files that these entries need, before a call gathers them."""
        files = self.tiers.files
        if files is not None and self.tiers.beneath.used:
            for entry in {*entries, *(source for each in missing_entries(entries) for source in each.sources)}:
                if entry.file is not None:
                    files.expect(entry.file)

    def begin(
        self,
        owner: Hashable,
        entries: Sequence[KVEntry],
        own: KVEntry | None = None,
        prefix: SharedPrefix | None = None,
    ) -> None:
        """Bring all of `entries` into the store, pinned for `owner` until `TieredCache.unpin`, and give `own` its
        pages, pinned too, with the tokens of a `prefix` that is in the store copied into them.

        They must fit (see `fits`). An entry that is damaged on disk is made again. Raises what a forward raises, or
        `StoreDamaged`; nothing is pinned for `owner` then.
        """
        gathered = entries if prefix is None else (*entries, prefix.entry)
        while True:
            try:
                return self._gather(owner, gathered, own, prefix)
            except StoreDamaged as error:  # the entry is now dropped
                if error.file is None or not self.fits(gathered, 0 if own is None else own.length):
                    raise

    def _gather(
        self, owner: Hashable, entries: Sequence[KVEntry], own: KVEntry | None, prefix: SharedPrefix | None
    ) -> None:
        dropped = missing_entries(entries)
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
        """For callers between two steps: keep these entries in the store, and pages for `own`, until the end of the
        `with` block. Raises `StoreFull` if running calls leave no room for them."""
        owner, asked = object(), list(entries)
        made = 0 if own is None else own.length
        if not self.fits(asked, made):
            ways = [_tokens(asked) + made, *(_tokens((*s.sources, s)) for s in missing_entries(asked))]
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


def common_prefix(recipe: EncodingRecipe, known: KVEntry) -> SharedPrefix | None:
    """The prefix that the result of `recipe` shares with an existing entry, without its last token, which is fed. None
    if there is none, or the entry has another context or salt, or was repaired or fed in another way."""
    other = known.recipe
    if other is None or other.base is not None or other.way != "whole" or not known.ready:
        return None
    if other.context.key((), other.salt, "whole") != recipe.context.key((), recipe.salt, "whole"):
        return None
    tokens = in_common(recipe.tokens, other.tokens)
    return SharedPrefix(known, tokens) if tokens else None


def missing_entries(entries: Iterable[KVEntry]) -> list[KVEntry]:
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
    """Count one use of each of `used`. Removes from `users`, and returns, the entries that are no longer needed."""
    done = []
    for entry in used:
        users[entry] -= 1
        if not users[entry]:
            del users[entry]
            done.append(entry)
    return done
