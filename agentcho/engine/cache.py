"""Keeps encodings in tiers: in the store, in host memory, on disk, or only as a recipe.

An entry is *held* while an id or a call can still ask for it, and *pinned* while a call gathers or makes it. Pinned
entries stay in the store. The others leave it when room is needed, the least recently used first: to host memory, where
the oldest copies make room for new ones, from there to disk in the same way, and from there to their recipe alone.
`restore` makes dropped entries again and gathers the entries that a call needs. Independent of calls and guards.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, NamedTuple

from agentcho.engine.call_layout import KVEntry
from agentcho.engine.protocols import KVPool, Row, Stored
from agentcho.errors import StoreDamaged, StoreFull
from agentcho.message import Words
from agentcho.protocol.call import EncodingId, Receipt
from agentcho.records.files import check_folder

if TYPE_CHECKING:
    from agentcho.engine.spill_files import SpillFile, SpillFiles

ENGINE = logging.getLogger("agentcho.engine")
AT_ONCE = 1 << 13
"""Maximum number of tokens per transfer between two tiers, unless a single encoding has more."""
FULL = "cannot write to %s: %s. From now on %d tokens are kept there, and all else that leaves memory is made again"


class SharedPrefix(NamedTuple):
    """An earlier state of a message over the same context: its entry, and the length of the common prefix in tokens."""

    entry: KVEntry
    tokens: int


@dataclass(eq=False)
class Encoding:
    """The encoding that an id names: its words, its receipt, and its entry, which other ids may share. `logits`: the
    kept rows `[vocab]`, if the decode asked for them."""

    id: EncodingId
    entry: KVEntry
    words: Words
    receipt: Receipt
    logits: Sequence[Row] = ()


class PoolUsage(NamedTuple):
    """How full an engine's store, host memory and disk are.

    Attributes:
        used: Pages of the store in use.
        reserved: Pages promised to running calls and not yet written.
        limit: Pages that the store may have.
        page_tokens: Tokens per page.
        high_water: Most pages ever in use.
        host_used: Tokens in host memory.
        host_limit: Tokens that host memory may hold.
        host_high_water: Most tokens ever in host memory.
        disk_used: Tokens on disk.
        disk_limit: Tokens that may be on disk.
        disk_high_water: Most tokens ever on disk.
        evicted: Encodings that left the store so far.
        dropped: Encodings that were dropped to their recipes so far.
        remade: Encodings that were made again so far.
        found: Tokens taken from files of earlier runs.
        kept: Tokens written to files for later runs.
    """

    used: int
    reserved: int
    limit: int
    page_tokens: int
    high_water: int
    host_used: int
    host_limit: int
    host_high_water: int
    disk_used: int
    disk_limit: int
    disk_high_water: int
    evicted: int
    dropped: int
    remade: int
    found: int = 0
    kept: int = 0


class DiskQuota(NamedTuple):
    """The number of `tokens` that may be on disk, and the `folder` in which an engine creates its own folder for them
    (None: the system's folder for temporary files)."""

    tokens: int = 0
    folder: str | Path | None = None

    @property
    def place(self) -> Path:
        """The folder in which engines create their own folders."""
        return Path(gettempdir() if self.folder is None else self.folder)

    def check(self) -> None:
        """Raise `CannotWrite` if the folder cannot be written."""
        if self.tokens:
            check_folder(self.place)

    def files(self) -> SpillFiles | None:
        """The files of one engine. None if the quota is 0. Raises `CannotWrite` if the folder cannot be written."""
        if not self.tokens:
            return None
        from agentcho.engine.spill_files import SpillFiles

        return SpillFiles(self.place)


NO_DISK = DiskQuota()


class CopyTier:
    """The entries with a copy in one tier outside the store, up to `limit` tokens, the least recently used first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.high_water = 0
        self.entries: dict[KVEntry, None] = {}

    def __contains__(self, entry: object) -> bool:
        return entry in self.entries

    def put(self, entry: KVEntry) -> None:
        """Add an entry, as the most recently used one."""
        self.entries[entry] = None
        self.used += entry.length
        self.high_water = max(self.high_water, self.used)

    def take(self, entry: KVEntry) -> None:
        """Remove an entry."""
        del self.entries[entry]
        self.used -= entry.length

    def surplus(self, tokens: int, wanted: Container[KVEntry]) -> Iterator[KVEntry]:
        """Yield the entries that must leave to make room for `tokens` more tokens, the oldest first, except those in
        `wanted`. The caller must remove each one before it takes the next."""
        for entry in list(self.entries) if self.used + tokens > self.limit else ():
            if self.used + tokens > self.limit and entry not in wanted:
                yield entry


class TieredCache:
    """All entries of one store, with copies of up to `host_limit` tokens in host memory, and of up to the quota of
    `disk` on disk. Raises `CannotWrite` if the disk folder cannot be written.

    `resident` (in the store), `outside` (in host memory) and `beneath` (on disk) are in the order of last use, the
    least recent first. Entries in `wanted` are never dropped: they go to host memory even beyond its limit.
    """

    def __init__(self, store: KVPool, host_limit: int, disk: DiskQuota = NO_DISK) -> None:
        self.store = store
        self.outside = CopyTier(host_limit)
        self.beneath = CopyTier(disk.tokens)
        self.files = disk.files()
        self.resident: dict[KVEntry, None] = {}
        self.pins: dict[Hashable, tuple[KVEntry, ...]] = {}
        self.pinned: Counter[KVEntry] = Counter()
        self.wanted: Container[KVEntry] = ()
        self._pinned_pages = 0
        self.evicted = self.dropped = self.remade = 0

    @property
    def fullness(self) -> PoolUsage:
        """See `PoolUsage`."""
        store = self.store
        stored = (store.used, store.reserved, store.limit, store.page_tokens, store.high_water)
        copied = [(shelf.used, shelf.limit, shelf.high_water) for shelf in (self.outside, self.beneath)]
        return PoolUsage(*stored, *copied[0], *copied[1], self.evicted, self.dropped, self.remade)

    def close(self) -> None:
        """Remove all files on disk."""
        if self.files is not None:
            self.files.close()

    # -- holding and pinning -----------------------------------------------------------------------------

    def hold(self, entries: Iterable[KVEntry]) -> None:
        """Count one more holder of an entry for each time that it is given."""
        for entry in entries:
            entry.holders += 1

    def release(self, entries: Iterable[KVEntry]) -> None:
        """Count one holder less of each entry. An entry without holders keeps only its recipe, for the entries that
        were made from it."""
        for entry in entries:
            entry.holders -= 1
            assert entry.holders >= 0
            if entry.holders == 0:
                self.discard(entry)

    def discard(self, entry: KVEntry) -> None:
        """Give up an entry's pages and its copy, wherever it is."""
        self._leave(entry)
        self._forget_copy(entry)
        entry.segment = entry.digest = None

    def pin(self, owner: Hashable, entries: Iterable[KVEntry]) -> None:
        """Pin these entries until `unpin(owner)`: they stay in the store, or their pages are promised. An owner pins at
        most once at a time."""
        assert owner not in self.pins
        self.pins[owner] = tuple(dict.fromkeys(entries))
        for entry in self.pins[owner]:
            self._pinned_pages += 0 if self.pinned[entry] else self._pages(entry)
            self.pinned[entry] += 1

    def unpin(self, owner: Hashable) -> None:
        """Unpin the entries that `owner` pinned, if any."""
        for entry in self.pins.pop(owner, ()):
            self.pinned[entry] -= 1
            if not self.pinned[entry]:
                del self.pinned[entry]
                self._pinned_pages -= self._pages(entry)

    # -- room --------------------------------------------------------------------------------------------

    @property
    def available(self) -> int:
        """Number of pages that are neither pinned nor promised: they are free, or can be freed."""
        return self.store.limit - self.store.reserved - self._pinned_pages

    def fits(self, entries: Iterable[KVEntry], own: int) -> bool:
        """Whether these entries and `own` more tokens fit into the store together, beside all pinned and promised
        pages."""
        asked = {entry for entry in entries if not self.pinned[entry]}
        return sum(map(self._pages, asked)) + self.store.pages_for(own) <= self.available

    def check(self, entries: Iterable[KVEntry], own: int, wide: int) -> None:
        """Raise `StoreFull` if these entries and `own` more tokens do not fit even into an empty store, or if `wide`
        tokens do not."""
        pages = max(sum(map(self._pages, set(entries))) + self.store.pages_for(own), self.store.pages_for(wide))
        if pages > self.store.limit:
            raise StoreFull(pages * self.store.page_tokens, self.store.limit * self.store.page_tokens)

    def reserve(self, tokens: int) -> int:
        """Promise pages for `tokens` tokens. Returns their number. Unpinned entries may have to leave the store."""
        self._make_room(self.store.pages_for(tokens))
        return self.store.reserve(tokens)

    def allocate(self, entry: KVEntry) -> None:
        """Give an entry its pages, which the caller writes next. Unpinned entries may have to leave the store."""
        self._make_room(self._pages(entry))
        entry.pages = self.store.allocate(entry.length)
        self.resident[entry] = None

    # -- moving ------------------------------------------------------------------------------------------

    def bring(self, entries: Iterable[KVEntry]) -> None:
        """Copy those of these entries that are in host memory or on disk back into the store, and mark all of them as
        just used. They must be pinned and wanted, and none dropped. Raises `StoreDamaged` if a copy has changed; its
        entry is dropped, and the error has a `file` if the copy was on disk."""
        asked = list(entries)
        for some in _at_once(entry for entry in dict.fromkeys(asked) if _outside(entry)):
            self._bring(some)
        for entry in asked:
            assert entry.pages is not None
            del self.resident[entry]
            self.resident[entry] = None

    def _bring(self, entries: Sequence[KVEntry]) -> None:
        """Copy entries back into the store in one transfer. If that fails, they are dropped."""
        copies = [self._checked(entry) for entry in entries]
        try:
            for entry in entries:
                self._forget_copy(entry)
            self._make_room(sum(map(self._pages, entries)))
            for entry in entries:
                self.allocate(entry)
            self.store.copy_in([(entry.block, copy) for entry, copy in zip(entries, copies, strict=True)])
        except BaseException:
            for entry in entries:
                self.drop(entry)
            raise

    def _checked(self, entry: KVEntry) -> Stored:
        """The copy of an entry outside the store, after a check of its checksum."""
        copy = self._copy(entry)
        if self.store.checksum(copy) != entry.digest:
            self.drop(entry)  # the next call that reads it encodes it again
            raise StoreDamaged("a copy in host memory has changed")
        return copy

    def read(self, file: SpillFile) -> Stored:
        """The copy in a file. Raises `StoreDamaged` if the file is gone or has changed."""
        assert self.files is not None
        return self.store.unpacked(self.files.read(file))

    def _copy(self, entry: KVEntry) -> Stored | None:
        """The copy of an entry, from host memory or from disk. None if it has none."""
        if entry.file is None:
            return entry.host
        try:
            return self.read(entry.file)
        except StoreDamaged as error:
            ENGINE.warning("%s", error)
            self.drop(entry)
            raise

    def move_out(self, entries: Iterable[KVEntry]) -> None:
        """Move entries out of the store: each to host memory if there is room, else to disk, else it is dropped.
        Raises `StoreDamaged` if the content of one has changed."""
        for some in _at_once(entries):
            kept = [entry for entry in some if self._may_keep(entry)]
            copies = dict(zip(kept, self.store.copy_out([entry.block for entry in kept]), strict=True))
            for entry in some:
                self._move_out(entry, copies.pop(entry, None))

    def _may_keep(self, entry: KVEntry) -> bool:
        """Whether a copy of an entry could fit into a tier outside the store."""
        return entry in self.wanted or entry.length <= max(self.outside.limit, self.beneath.limit)

    def _move_out(self, entry: KVEntry, copy: Stored | None) -> None:
        self.evicted += 1
        near = entry in self.wanted or self._room_outside(entry.length)
        if copy is None or (not near and entry.length > self.beneath.limit):
            return self.drop(entry)
        digest = self.store.checksum(copy)
        if entry.digest not in (None, digest):
            raise StoreDamaged("keys or values in the store have changed")
        entry.digest = digest
        if near:
            entry.host = copy
            self.outside.put(entry)
        elif not self._write(entry, copy):
            return self.drop(entry)
        return self._leave(entry)

    def drop(self, entry: KVEntry) -> None:
        """Drop an entry: keep only its recipe."""
        self.dropped += 1
        self.discard(entry)

    def swap_out(self, entries: Iterable[KVEntry]) -> None:
        """Move the unpinned ones of these entries out of the store."""
        asked = dict.fromkeys(entries)
        self.move_out([entry for entry in asked if entry.pages is not None and not self.pinned[entry]])

    def trim(self, tokens: int = 0) -> None:
        """Move the oldest copies to disk, or drop them, until host memory has room for `tokens` more tokens."""
        for entry in self.outside.surplus(tokens, self.wanted):
            copy = entry.host
            if self._write(entry, copy):
                self.outside.take(entry)
                entry.host = None
            else:
                self.drop(entry)

    def _write(self, entry: KVEntry, copy: Stored) -> bool:
        """Write a copy to disk. Returns False if there is no room. After an `OSError` the limit of the disk tier is
        lowered to what it holds at that time."""
        if self.files is None or entry.length > self.beneath.limit:
            return False
        for oldest in self.beneath.surplus(entry.length, self.wanted):
            self.drop(oldest)
        if self.beneath.used + entry.length > self.beneath.limit:
            return False
        try:
            entry.file = self.files.write(self.store.packed(copy))
        except OSError as error:
            self.beneath.limit = self.beneath.used
            ENGINE.warning(FULL, self.files.folder, error.strerror or error, self.beneath.limit)
            return False
        self.beneath.put(entry)
        return True

    def _pages(self, entry: KVEntry) -> int:
        return self.store.pages_for(entry.length)

    def _make_room(self, pages: int) -> None:
        room, victims = self.store.room, list[KVEntry]()
        for entry in self.resident if room < pages else ():
            if not self.pinned[entry]:
                victims.append(entry)
                room += self._pages(entry)
                if room >= pages:
                    break
        self.move_out(victims)
        if room < pages:
            raise StoreFull(pages * self.store.page_tokens, self.store.room * self.store.page_tokens)

    def _room_outside(self, tokens: int) -> bool:
        if tokens > self.outside.limit:
            return False
        self.trim(tokens)
        return self.outside.used + tokens <= self.outside.limit

    def _leave(self, entry: KVEntry) -> None:
        if entry.pages is not None:
            del self.resident[entry]
            self.store.free(entry.pages)
            entry.pages = None

    def _forget_copy(self, entry: KVEntry) -> None:
        if entry.host is not None:
            self.outside.take(entry)
            entry.host = None
        if entry.file is not None:
            assert self.files is not None
            self.beneath.take(entry)
            self.files.remove(entry.file)
            entry.file = None


def _outside(entry: KVEntry) -> bool:
    """Whether an entry has a copy in host memory or on disk."""
    return entry.host is not None or entry.file is not None


def _at_once(entries: Iterable[KVEntry]) -> Iterator[list[KVEntry]]:
    """Group entries by at most `AT_ONCE` tokens. An entry with more is a group of its own."""
    group, tokens = list[KVEntry](), 0
    for entry in entries:
        if group and tokens + entry.length > AT_ONCE:
            yield group
            group, tokens = [], 0
        group.append(entry)
        tokens += entry.length
    if group:
        yield group
