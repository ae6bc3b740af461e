"""Slots: where running decodes keep the keys and values of their contexts, gathered once and then appended to.

A slot is one row of a pool. A pool has rows of like capacity in one tensor a layer, so that all of them attend in one
operation. A slot that is handed out is all zeros, so that nothing which another decode left stands behind a mask.
What decodes that begin together read of the same encodings they share (see `kv.shared_runs`): it is gathered once,
and read once a step for all. Does not know: calls, sampling, where keys are stored in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor

from agentcho.engine.layout import Context, KVEntry, Parallel, Piece
from agentcho.runner.attention import flex, triton_paged
from agentcho.runner.kv.kv_pool import LayerShape, zeros
from agentcho.runner.kv.page_tables import Tables, widths
from agentcho.runner.kv.shared_runs import LEAST, Pieces, alike, runs, tokens

_serials = count()
IDLE = 1 / 4
"""The share of the store's tokens that pools without any row may keep."""
SAVED = 2 << 20
"""Bytes of keys and values of one layer that a step need not read again, from which on a run is gathered to be shared:
what it takes to attend to it apart is less then."""
LONG = 8 << 20
"""So many of them, and what a row gathers is open to rows that begin later: a second copy weighs more than that."""


class Slot:
    """The place of one row. `length` tokens are filled, and nothing beyond token `touched` was ever written. `pool` and
    `index` change when it moves to a wider pool.

    `pieces` are those of the row's context that are gathered here; what `readings` names is read in place; and what is
    `stored` is read from its pages, by the tables of the pool. `parallel`: which of its first tokens are not weighed as
    they are, once these are gathered.
    """

    def __init__(self, pool: SlotPool, index: int) -> None:
        self.pool, self.index, self.length, self.touched = pool, index, 0, 0
        self.pieces: Pieces = ()
        self.readings: tuple[Reading, ...] = ()
        self.parallel: Parallel | None = None
        self.stored: Pieces = ()

    def room(self, layer: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Views `[heads, tokens, dim]` of one layer to write the next `tokens` tokens into."""
        return self.get(layer, self.length, self.length + tokens)

    def get(self, layer: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Views of the keys and values `[heads, stop - start, dim]` of one layer."""
        pool = self.pool
        return pool.keys[layer][self.index, :, start:stop], pool.values[layer][self.index, :, start:stop]

    def all(self, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The same of every layer, in order."""
        return (self.get(layer, start, stop) for layer in range(len(self.pool.keys)))

    def place(self, start: int, positions: Tensor) -> None:
        """Write the logical positions of tokens start … start + n, before their keys and values."""
        self.touched = max(self.touched, start + len(positions))
        self.pool.positions[self.index, start : start + len(positions)] = positions

    def positions(self, stop: int) -> Tensor:
        """Logical positions of the first `stop` tokens."""
        return self.pool.positions[self.index, :stop]


class SharedRun:
    """Pieces in a slot of their own, at the positions where the first of its readers has them. `readers`: how many
    readings of it rows have. `claimed`: one of these rows has gathered it, or does so in this forward."""

    def __init__(self, pieces: Pieces, slot: Slot) -> None:
        self.pieces, self.slot, self.tokens = pieces, slot, tokens(pieces)
        self.readers, self.claimed = 0, False


class Reading(NamedTuple):
    """The tokens start … stop of a run as one row reads them: `shift` positions further along than they were
    gathered."""

    run: SharedRun
    start: int
    stop: int
    shift: int

    @property
    def span(self) -> tuple[SharedRun, int, int]:
        """What it reads, wherever that stands."""
        return self.run, self.start, self.stop


class Kind(NamedTuple):
    """Which rows are in one pool. A pool that is `alone` has one row for good, so that its shapes and its alignment
    depend on that row only. Rows that do not go in every step (shadows) are `apart` from those that do, which would
    else read their contexts too. Rows that also read in place are in pools `beside` the others. Those that read up to
    `stored` tokens where they are stored have tables of them; 0: they have none."""

    capacity: int
    alone: bool = False
    apart: bool = False
    beside: bool = False
    stored: int = 0


class SlotPool:
    """Rows of one kind. `keys[layer]` and `values[layer]` are `[rows, heads, capacity, dim]`, `positions` is `[rows,
    capacity]`. `kernels`: the devices on which rows read only their own blocks (see `attention.flex`). `tables`: what
    rows read where it is stored."""

    def __init__(self, layers: list[LayerShape], kind: Kind, device: torch.device, dtype: torch.dtype) -> None:
        self.kind, self.capacity, self.serial = kind, kind.capacity, next(_serials)
        self.slots: list[Slot] = []
        places = [(shape, shape.device or device) for shape in layers]
        self.keys = [zeros((1, s.heads, kind.capacity, s.key_dim), at, dtype) for s, at in places]
        self.values = [zeros((1, s.heads, kind.capacity, s.value_dim), at, dtype) for s, at in places]
        self.positions = torch.zeros(1, kind.capacity, device=device, dtype=torch.long)
        self.kernels = {at for _, at in places if flex.has_kernels(at)}
        self.tables = Tables(kind.stored, device) if kind.stored else None
        self._reached = [0]

    @property
    def tokens(self) -> int:
        """How many tokens it takes memory for: on a CPU those that were ever written, elsewhere all that there is room
        for."""
        return sum(self._reached) if self.positions.device.type == "cpu" else self.positions.numel()

    def open(self) -> Slot:
        """A new slot, all zeros."""
        if len(self.slots) == len(self.positions):
            self._widen()
        slot = Slot(self, len(self.slots))
        self.slots.append(slot)
        return slot

    def close(self, slot: Slot) -> None:
        """Give a slot up. The last slot moves into its row, so that the rows in use stay the first ones."""
        last = self.slots.pop()
        dirty = max(slot.touched, last.touched)
        for row in (slot.index, last.index):
            self._reached[row] = max(self._reached[row], dirty)
        for tensor in self._tensors():
            if last is not slot:
                tensor[slot.index, ..., :dirty] = tensor[last.index, ..., :dirty]
            tensor[last.index, ..., : last.touched] = 0
        if self.tables is not None:
            self.tables.take(slot.index, self.tables, last.index)
            self.tables.clear(last.index)
        if last is not slot:
            self.slots[slot.index] = last
            last.index = slot.index

    def _tensors(self) -> Iterator[Tensor]:
        """All its tensors, with tokens as the last dimension."""
        yield from (tensor.transpose(2, 3) for tensor in (*self.keys, *self.values))
        yield self.positions

    def _widen(self) -> None:
        """Make more rows: four times as many where they are cheap, because a pool that fills up at all tends to do so
        at once."""
        rows = len(self.positions) * (4 if self.positions.numel() < 4096 else 2)
        dirty = max((slot.touched for slot in self.slots), default=0)
        self.keys = [_widened(tensor, rows, dirty) for tensor in self.keys]
        self.values = [_widened(tensor, rows, dirty) for tensor in self.values]
        wide = self.positions.new_zeros(rows, self.capacity)
        wide[: len(self.positions)] = self.positions
        self.positions = wide
        if self.tables is not None:
            self.tables.widen(rows)
        self._reached = [dirty] * len(self._reached) + [0] * (rows - len(self._reached))


def _widened(tensor: Tensor, rows: int, dirty: int) -> Tensor:
    """A copy with more rows, of which only the first `dirty` tokens were ever written."""
    wide = zeros((rows, *tensor.shape[1:]), tensor.device, tensor.dtype)
    wide[: len(tensor), :, :dirty] = tensor[:, :, :dirty]
    return wide


class Slots:
    """All slots of an engine, in pools whose capacities double from `smallest` on.

    Pools without rows are kept for the next row of their kind, up to `idle` tokens in all, because the first write to
    fresh memory costs as much again. Rows `may_share` runs of their contexts where that is exact (see
    `reuse_check.can_share`). With `in_place` they read whole contexts where they are stored, as long as kernels
    do that well (see `attention.triton_paged`).
    """

    def __init__(
        self,
        layers: list[LayerShape],
        device: torch.device,
        dtype: torch.dtype,
        smallest: int = 128,
        idle: int = 0,
        may_share: bool = False,
        in_place: bool = False,
    ) -> None:
        self._layers, self._device, self._dtype = layers, device, dtype
        self._smallest, self._idle, self.may_share, self.in_place = smallest, idle, may_share, in_place
        a_token = [shape.heads * (shape.key_dim + shape.value_dim) for shape in layers]
        self._bytes = max(a_token, default=1) * dtype.itemsize
        self._pools: list[SlotPool] = []
        self.shared: list[SharedRun] = []
        self._expected: dict[KVEntry, Pieces] = {}
        self._known: dict[KVEntry, list[tuple[SharedRun, int]]] = {}

    def __len__(self) -> int:
        return sum(len(pool.slots) for pool in self._pools)

    # -- for rows, which may share contexts --------------------------------------------------------------

    def expect(self, contexts: Iterable[Context]) -> None:
        """Announce the contexts of all rows that wait, before any of them takes a slot. What only one of them has is
        not shared, but where a row has it in place already."""
        found = runs(contexts, SAVED // self._bytes) if self.may_share and not self.in_place else ()
        self._expected = {run[0].entry: run for run in found}

    def take(self, context: Context, feed: int, alone: bool, apart: bool) -> Slot:
        """A slot for a row that begins with `feed` tokens over this context. See `Kind` for `alone` and `apart`. What
        the row reads where it is stored must stay there until the slot is closed."""
        apart_from_all = alone or context.parallel is not None
        if self.in_place and not apart_from_all and not apart and not triton_paged.refused(self._device):
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
        """A slot for a row that reads all its context where it is stored."""
        slot = self.open(2 * feed, stored=widths(tokens(pieces)))
        try:
            assert slot.pool.tables is not None
            slot.pool.tables.write(slot.index, pieces)
        except BaseException:
            self._vacate(slot)
            raise
        slot.stored = pieces
        return slot

    def _split(self, pieces: Pieces) -> tuple[Pieces, tuple[Reading, ...]]:
        """Which of these pieces a row gathers for itself, and what it reads in place, as one more reader of that."""
        own, readings, place = list[Piece](), list[Reading](), 0
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
        """The longest reading of what stands there that other rows have too, or will have, and of how many pieces it
        is."""
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
        """A run of these pieces, which nobody has gathered yet."""
        run = SharedRun(pieces, self.open(tokens(pieces), alone=True))
        self.shared.append(run)
        for place, piece in enumerate(pieces):
            self._known.setdefault(piece.entry, []).append((run, place))
        return run

    def clear(self) -> None:
        """Forget all shared runs, after all slots were closed."""
        for run in list(self.shared):
            self._forget(run)

    def _leave(self, readings: Iterable[Reading]) -> None:
        """Note that a row has these no more. A run goes with its last reader."""
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

    # -- for callers that know how many tokens they need -------------------------------------------------

    def open(
        self, tokens: int, alone: bool = False, apart: bool = False, beside: bool = False, stored: int = 0
    ) -> Slot:
        """A slot with room for `tokens` tokens in a pool of such rows; see `Kind`."""
        return self._pool(Kind(tokens, alone, apart, beside, stored)).open()

    def close(self, slot: Slot) -> None:
        """Give a slot up. A pool that is `alone` gives its memory back at once; another one without rows does so when a
        new pool is needed and too much is kept."""
        self._vacate(slot)
        self._leave(slot.readings)

    def retract(self, slot: Slot, tokens: int) -> None:
        """Forget the last tokens of a slot: what comes next is written over them."""
        slot.length -= tokens

    def _vacate(self, slot: Slot) -> None:
        slot.pool.close(slot)
        if slot.pool.kind.alone:
            self._pools.remove(slot.pool)

    def ensure(self, slot: Slot, tokens: int) -> None:
        """Make room for `tokens` tokens; the slot moves to a wider pool if its own is too narrow."""
        if tokens <= slot.pool.capacity:
            return
        wide = self._pool(slot.pool.kind._replace(capacity=tokens)).open()
        for layer, (keys, values) in enumerate(slot.all(0, slot.length)):
            wide_keys, wide_values = wide.get(layer, 0, slot.length)
            wide_keys[:], wide_values[:] = keys, values
        wide.place(0, slot.positions(slot.length))
        if wide.pool.tables is not None and slot.pool.tables is not None:
            wide.pool.tables.take(wide.index, slot.pool.tables, slot.index)
        self._vacate(slot)
        slot.pool, slot.index, slot.touched = wide.pool, wide.index, wide.touched
        slot.pool.slots[slot.index] = slot

    def _pool(self, needed: Kind) -> SlotPool:
        """A pool of this kind with at least its capacity."""
        capacity = self._smallest
        while capacity < needed.capacity:
            capacity *= 2
        kind = needed._replace(capacity=capacity)
        fitting = next((pool for pool in self._pools if pool.kind == kind), None)
        if fitting is not None and not kind.alone:
            return fitting
        self._drop_idle()
        self._pools.append(SlotPool(self._layers, kind, self._device, self._dtype))
        return self._pools[-1]

    def _drop_idle(self) -> None:
        """Drop pools without rows until they keep no more than `idle` tokens; the smallest go first, because to write
        their memory again costs least."""
        empty = sorted((pool for pool in self._pools if not pool.slots), key=lambda each: each.tokens)
        while sum(pool.tokens for pool in empty) > self._idle:
            self._pools.remove(empty.pop(0))
