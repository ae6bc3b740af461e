"""Slots: where running decodes keep the keys and values of their contexts, gathered once and then appended to.

A slot is one row of a pool. A pool has rows of like capacity in one tensor a layer, so that all of them attend in one
operation. A slot that is handed out is all zeros, so that nothing which another decode left stands behind a mask.
Decodes that begin together over the same encodings at the same places share that context: it is gathered once, and read
once a step for all. Does not know: calls, sampling, where keys are stored in the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor

from agentcho.engine.cache import KVEntry
from agentcho.engine.layout import Context
from agentcho.runner import flex
from agentcho.runner.pages import LayerShape, zeros

_serials = count()
IDLE = 1 / 4
"""The share of the store's tokens that pools without any row may keep."""
LEAST = 64
"""A context of fewer tokens is not shared: to read it apart takes longer than to read it several times."""
_Places = tuple[tuple[KVEntry, int], ...]


class Slot:
    """The place of one row. `length` tokens are filled, and nothing beyond token `touched` was ever written. `pool` and
    `index` change when it moves to a wider pool."""

    def __init__(self, pool: SlotPool, index: int) -> None:
        self.pool, self.index, self.length, self.touched = pool, index, 0, 0

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


class SharedContext:
    """A context of `tokens` tokens in a slot of its own, which `rows` rows attend to before their own tokens.
    `claimed`: one of these rows has gathered it, or does so in this forward."""

    def __init__(self, slot: Slot, tokens: int) -> None:
        self.slot, self.tokens, self.rows, self.claimed = slot, tokens, 0, False

    def get(self, layer: int) -> tuple[Tensor, Tensor]:
        """Views of keys and values `[heads, tokens, dim]` of one layer."""
        return self.slot.get(layer, 0, self.tokens)


class Kind(NamedTuple):
    """Which rows are in one pool. A pool that is `alone` has one row for good, so that its shapes and its alignment
    depend on that row only. Rows that do not go in every step (shadows) are `apart` from those that do, which would
    else read their contexts too. Rows over a `shared` context are in a pool of their own."""

    capacity: int
    alone: bool = False
    apart: bool = False
    shared: SharedContext | None = None


class SlotPool:
    """Rows of one kind. `keys[layer]` and `values[layer]` are `[rows, heads, capacity, dim]`, `positions` is `[rows,
    capacity]`. `kernels`: the devices on which rows read only their own blocks (see `flex`)."""

    def __init__(self, layers: list[LayerShape], kind: Kind, device: torch.device, dtype: torch.dtype) -> None:
        self.kind, self.capacity, self.shared, self.serial = kind, kind.capacity, kind.shared, next(_serials)
        self.slots: list[Slot] = []
        places = [(shape, shape.device or device) for shape in layers]
        self.keys = [zeros((1, s.heads, kind.capacity, s.key_dim), at, dtype) for s, at in places]
        self.values = [zeros((1, s.heads, kind.capacity, s.value_dim), at, dtype) for s, at in places]
        self.positions = torch.zeros(1, kind.capacity, device=device, dtype=torch.long)
        self.kernels = {at for _, at in places if flex.has_kernels(at)}
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
        self._reached = [dirty] * len(self._reached) + [0] * (rows - len(self._reached))


def _widened(tensor: Tensor, rows: int, dirty: int) -> Tensor:
    """A copy with more rows, of which only the first `dirty` tokens were ever written."""
    wide = zeros((rows, *tensor.shape[1:]), tensor.device, tensor.dtype)
    wide[: len(tensor), :, :dirty] = tensor[:, :, :dirty]
    return wide


class Slots:
    """All slots of an engine, in pools whose capacities double from `smallest` on.

    Pools without rows are kept for the next row of their kind, up to `idle` tokens in all, because the first write to
    fresh memory costs as much again. Rows `may_share` contexts where that is exact and was found to be worth it (see
    `gate.can_share`).
    """

    def __init__(
        self,
        layers: list[LayerShape],
        device: torch.device,
        dtype: torch.dtype,
        smallest: int = 128,
        idle: int = 0,
        may_share: bool = False,
    ) -> None:
        self._layers, self._device, self._dtype = layers, device, dtype
        self._smallest, self._idle, self.may_share = smallest, idle, may_share
        self._pools: list[SlotPool] = []
        self.shared: dict[_Places, SharedContext] = {}
        self._expected: Counter[_Places] = Counter()

    def __len__(self) -> int:
        return sum(len(pool.slots) for pool in self._pools)

    # -- for rows, which may share contexts --------------------------------------------------------------

    def expect(self, contexts: Iterable[Context]) -> None:
        """Announce the contexts of all rows that wait, before any of them takes a slot. A context that only one of them
        has is not shared."""
        self._expected = Counter(_places(context) for context in contexts) if self.may_share else Counter()

    def take(self, context: Context, feed: int, alone: bool, apart: bool) -> Slot:
        """A slot for a row that begins with `feed` tokens over this context. See `Kind` for `alone` and `apart`."""
        shared = None if alone or context.length < LEAST else self._common(context)
        if shared is None:
            return self.open(context.length + 2 * feed, alone, apart)
        try:
            slot = self.open(2 * feed, alone, apart, shared)
        except BaseException:
            if not shared.rows:
                self._forget(shared)
            raise
        shared.rows += 1
        return slot

    def _common(self, context: Context) -> SharedContext | None:
        """The shared slot of a context that other rows have too, or will have; None: no other row has it."""
        places = _places(context)
        if places not in self.shared and self._expected[places] > 1:
            self.shared[places] = SharedContext(self.open(context.length, alone=True), context.length)
        return self.shared.get(places)

    def clear(self) -> None:
        """Forget all shared contexts, after all slots were closed."""
        for shared in list(self.shared.values()):
            self._forget(shared)

    def _forget(self, shared: SharedContext) -> None:
        """Give up a shared context whose rows are all closed."""
        self.shared = {places: each for places, each in self.shared.items() if each is not shared}
        self._pools = [pool for pool in self._pools if pool.shared is not shared]
        self.close(shared.slot)

    # -- for callers that know how many tokens they need -------------------------------------------------

    def open(self, tokens: int, alone: bool = False, apart: bool = False, shared: SharedContext | None = None) -> Slot:
        """A slot with room for `tokens` tokens in a pool of such rows; see `Kind`."""
        return self._pool(Kind(tokens, alone, apart, shared)).open()

    def close(self, slot: Slot) -> None:
        """Give a slot up. A shared context goes with the last row over it. A pool that is `alone` gives its memory back
        at once; another one without rows does so when a new pool is needed and too much is kept."""
        shared = slot.pool.shared
        self._vacate(slot)
        if shared is not None:
            shared.rows -= 1
            if not shared.rows:
                self._forget(shared)

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


def _places(context: Context) -> _Places:
    return tuple((piece.entry, piece.offset) for piece in context.pieces)
