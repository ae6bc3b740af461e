"""Brings together in the store all that a call gathers: all or nothing, what was dropped made again.

Whether it can be done is settled first, by counting pages; then nothing but a failing forward or a damaged copy stops
it. What is made again gathers what it gathered when it was first made, and nothing else, so no label changes. Does
not know: calls, guards, how a forward computes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from agentcho.engine.encoding import Recipe, Storage
from agentcho.engine.tiers import Tiers
from agentcho.errors import StoreFull


class Assembly:
    """`make(storage)` computes a storage into its pages by its recipe, and returns the tokens it fed. `fed` counts all
    tokens that were fed to make dropped storages again."""

    def __init__(self, tiers: Tiers, make: Callable[[Storage], int]) -> None:
        self.tiers, self._make = tiers, make
        self._kept: list[Storage] = []
        self.fed = 0

    def keep(self, recipe: Recipe) -> Storage:
        """Make a storage and keep it in the store for good."""
        storage = recipe.storage()
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
