"""Assigns slots to running decodes, and decides which parts of a context a row shares with others or reads in place.

Decodes that begin together share the encodings they have in common (see `kv.shared_runs`): these are gathered once, and
read once per step for all of them. Independent of calls, sampling and attention.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from agentcho.engine.call_layout import CallContext, ContextPiece, KVEntry
from agentcho.engine.call_layout import Slot as CoreSlot
from agentcho.runner.attention.base import Setting
from agentcho.runner.attention.registry import Backends
from agentcho.runner.kv.decode_kv import Pieces, PoolKind, Reading, Reads, SharedRun, Slot, SlotPool, tokens
from agentcho.runner.kv.kv_pool import LayerShape
from agentcho.runner.kv.lanes import LanePool, LaneSlot, Room
from agentcho.runner.kv.shared_runs import LEAST, alike, runs

IDLE = 1 / 4
"""The share of the store's tokens that pools without rows may keep."""
SAVED = 2 << 20
"""A run is gathered to be shared if this saves at least this many bytes of key and value reads per layer and step;
below that, attending to it separately costs more."""
LONG = 8 << 20
"""If a row gathers at least this many bytes per layer, rows that begin later can read them too, because a second copy
would cost more than separate attention."""


class Slots:
    """All slots of an engine, in pools whose capacities double starting at `smallest`.

    Pools without rows are kept for the next row of their kind, up to `idle` tokens in total, because the first write to
    fresh memory costs as much again. `may_share`: a backend attends to shared runs, so rows may share runs of their
    contexts. `in_place`: a backend attends to stored pages, so rows read whole contexts where they are stored, unless
    the backend was refused.
    """

    def __init__(
        self,
        layers: list[LayerShape],
        device: torch.device,
        dtype: torch.dtype,
        smallest: int = 128,
        idle: int = 0,
        backends: Backends | None = None,
        room: Room | None = None,
    ) -> None:
        self._layers, self._device, self._dtype = layers, device, dtype
        self._smallest, self._idle = smallest, idle
        self.backends = backends or Backends(Setting(device, frozenset([device])))
        self.may_share, self.in_place = self.backends.reading("shared"), self.backends.reading("pages")
        a_token = [shape.heads * (shape.key_dim + shape.value_dim) for shape in layers]
        self._bytes = max(a_token, default=1) * dtype.itemsize
        self._pools: list[SlotPool] = []
        self._room, self._lanes = room or Room(), list[LanePool]()
        self.shared: list[SharedRun] = []
        self._expected: dict[KVEntry, Pieces] = {}
        self._known: dict[KVEntry, list[tuple[SharedRun, int]]] = {}

    def __len__(self) -> int:
        return sum(len(pool.slots) for pool in (*self._pools, *self._lanes))

    @property
    def lanes(self) -> LanePool:
        """The pool of the rows that read their contexts where they are stored, created on first use."""
        if not self._lanes:
            several = self._several("pages")
            self._lanes.append(LanePool(self._layers, self._device, self._dtype, several=several, room=self._room))
        return self._lanes[0]

    # -- rows, which may share contexts ------------------------------------------------------------------

    def expect(self, contexts: Iterable[CallContext]) -> None:
        """Announce the contexts of all waiting rows, before any of them takes a slot. A part that only one of them has
        is shared only if another row already has it in place."""
        several, least = list(contexts), SAVED // self._bytes
        found = runs(several, least) if self.may_share and not self.in_place and len(several) > 1 else ()
        self._expected = {run[0].entry: run for run in found}

    def take(self, context: CallContext, feed: int, alone: bool, apart: bool) -> Slot:
        """Return a slot for a row that begins with `feed` tokens over this context. See `PoolKind` for `alone` and
        `apart`. What the row reads where it is stored must stay there until the slot is closed."""
        apart_from_all = alone or context.parallel is not None
        if self.in_place and not apart_from_all and not self.backends.refused("pages", self._device):
            return self._over(context.pieces, feed)
        own, readings = (context.pieces, ()) if apart_from_all else self._split(context.pieces)
        try:
            slot = self.open(tokens(own) + 2 * feed, alone, apart, bool(readings))
        except BaseException:
            self._leave(readings)
            raise
        slot.pieces, slot.readings = own, readings
        return slot

    def _over(self, pieces: Pieces, feed: int) -> Slot:
        """A slot for a row that reads its whole context where it is stored."""
        slot = self.lanes.open()
        try:
            self.lanes.ensure(slot, 2 * feed)
            self.lanes.read(slot, pieces)
        except BaseException:
            self._vacate(slot)
            raise
        slot.stored = pieces
        return slot

    def _split(self, pieces: Pieces) -> tuple[Pieces, tuple[Reading, ...]]:
        """Split pieces into those that a row gathers for itself and the readings of shared runs, of which it becomes a
        reader."""
        own, readings, place = list[ContextPiece](), list[Reading](), 0
        try:
            while place < len(pieces):
                reading, count = self._in_place(pieces, place)
                if reading is None or reading.span in [each.span for each in readings]:
                    own.append(pieces[place])
                    place += 1
                else:
                    reading.run.readers += 1
                    readings.append(reading)
                    place += count
            if self.may_share and own and tokens(own) * self._bytes >= LONG:
                own, found = [], self._share(tuple(own))
                found.readers += 1
                readings.append(Reading(found, 0, found.tokens, 0))
        except BaseException:
            self._leave(readings)
            raise
        return tuple(own), tuple(readings)

    def _in_place(self, pieces: Pieces, place: int) -> tuple[Reading | None, int]:
        """The longest reading at `place` that other rows have too or will have, and the number of pieces it covers."""
        best, most = None, LEAST - 1
        for run, first in self._known.get(pieces[place].entry, ()):
            count = alike(run.pieces[first:], pieces[place:])
            if (length := tokens(run.pieces[first : first + count])) > most:
                start, shift = tokens(run.pieces[:first]), pieces[place].offset - run.pieces[first].offset
                best, most = (Reading(run, start, start + length, shift), count), length
        asked = self._expected.get(pieces[place].entry, ())
        if tokens(asked) > most and alike(asked, pieces[place:]) == len(asked):
            run = self._share(pieces[place : place + len(asked)])
            best = Reading(run, 0, run.tokens, 0), len(asked)
        return best or (None, 0)

    def _share(self, pieces: Pieces) -> SharedRun:
        """Create a shared run of these pieces. Nothing is gathered into it yet."""
        run = SharedRun(pieces, self.open(tokens(pieces), alone=True))
        self.shared.append(run)
        for place, piece in enumerate(pieces):
            self._known.setdefault(piece.entry, []).append((run, place))
        return run

    def clear(self) -> None:
        """Drop all shared runs, after all slots were closed."""
        for run in list(self.shared):
            self._forget(run)

    def _leave(self, readings: Iterable[Reading]) -> None:
        """Note that a row no longer has these readings. A run is dropped with its last reader."""
        for run, *_ in readings:
            run.readers -= 1
            if not run.readers:
                self._forget(run)

    def _forget(self, run: SharedRun) -> None:
        self.shared.remove(run)
        for piece in run.pieces:
            left = [each for each in self._known.pop(piece.entry, ()) if each[0] is not run]
            if left:
                self._known[piece.entry] = left
        self._vacate(run.slot)

    # -- callers that know how many tokens they need -----------------------------------------------------

    def open(self, tokens: int, alone: bool = False, apart: bool = False, beside: bool = False) -> Slot:
        """Return a slot with room for `tokens` tokens in a pool of this kind; see `PoolKind`."""
        return self._pool(PoolKind(tokens, alone, apart, beside)).open()

    def close(self, slot: CoreSlot) -> None:
        """Give a slot up. A pool that is `alone` frees its memory at once; other pools without rows are freed when a
        new pool is needed and too many tokens are kept."""
        assert isinstance(slot, Slot)
        self._vacate(slot)
        self._leave(slot.readings)

    def retract(self, slot: CoreSlot, tokens: int) -> None:
        """Drop the last tokens of a slot; the next ones are written over them."""
        assert isinstance(slot, Slot)
        slot.length -= tokens

    def _vacate(self, slot: Slot) -> None:
        slot.pool.close(slot)
        if slot.pool.kind.alone:
            self._pools.remove(slot.pool)

    def ensure(self, slot: Slot, tokens: int) -> None:
        """Make room for `tokens` tokens: the slot gets more lanes, or moves to a wider pool."""
        if tokens <= slot.capacity:
            return
        if isinstance(slot, LaneSlot):
            slot.pool.ensure(slot, tokens)
            return
        wide = self._pool(slot.pool.kind._replace(capacity=tokens)).open()
        for layer, (keys, values) in enumerate(slot.all(0, slot.length)):
            wide_keys, wide_values = wide.get(layer, 0, slot.length)
            wide_keys[:], wide_values[:] = keys, values
        wide.place(0, slot.positions(slot.length))
        self._vacate(slot)
        slot.pool, slot.index, slot.touched = wide.pool, wide.index, wide.touched
        slot.capacity = wide.capacity
        slot.pool.slots[slot.index] = slot

    def _pool(self, needed: PoolKind) -> SlotPool:
        """A pool of this kind with at least its capacity."""
        capacity = self._smallest
        while capacity < needed.capacity:
            capacity *= 2
        kind = needed._replace(capacity=capacity)
        fitting = next((pool for pool in self._pools if pool.kind == kind), None)
        if fitting is not None and not kind.alone:
            return fitting
        self._drop_idle()
        several = self._several(kind.reads)
        self._pools.append(SlotPool(self._layers, kind, self._device, self._dtype, several))
        return self._pools[-1]

    def _several(self, reads: Reads) -> bool:
        """Whether a step can take several tokens of a row that reads its context this way."""
        devices = {shape.device or self._device for shape in self._layers}
        return all(self.backends.several(reads, device) for device in devices)

    def _drop_idle(self) -> None:
        """Drop pools without rows until these keep at most `idle` tokens. The smallest go first, because their memory
        is the cheapest to write again."""
        empty = sorted((pool for pool in self._pools if not pool.slots), key=lambda each: each.tokens)
        while sum(pool.tokens for pool in empty) > self._idle:
            self._pools.remove(empty.pop(0))
