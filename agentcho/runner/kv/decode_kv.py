"""The slots in which running decodes keep the keys and values of their contexts, gathered once and then appended to.

A slot is one row of a pool. A pool has rows of similar capacity in one tensor per layer, so that all of them attend in
one operation. A new slot is all zeros, so that no data of an earlier decode remains behind a mask. Independent of how
rows are assigned to slots, and of attention.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from agentcho.engine.call_layout import ContextPiece, ParallelContext
from agentcho.runner.kv.kv_pool import LayerShape, zeros

Pieces = tuple[ContextPiece, ...]
Reads = Literal["copy", "shared", "pages"]
"""Where a row reads its context: "copy": all of it is copied into the row's own slot. "shared": runs of it are in slots
that several rows read, the rest in its own. "pages": it stays in the pages of the store, and a table says where."""
PADDED = 256
"""Where shapes should rarely change, the width that is passed on is a multiple of this, or the whole capacity."""
serials = count()
"""Serial numbers that identify pools."""


class Slot:
    """The place of one row, with room for `capacity` tokens. `length` of them are filled, and nothing from token
    `touched` on was ever written. `pool`, `index` and `capacity` change when it moves to a wider pool.

    `pieces`: the part of the row's context that is gathered here. `readings`: the shared runs that it reads in place.
    `stored`: the pieces that it reads from their pages, by the tables of its pool. `parallel`: which of its first
    tokens are weighed differently, once these are gathered. `scattered`: its tokens are in several places, and `get`
    copies them (see `lanes`).
    """

    scattered = False

    def __init__(self, pool: SlotPool, index: int) -> None:
        self.pool, self.index, self.alone = pool, index, pool.kind.alone
        self.length = self.touched = 0
        self.capacity = pool.capacity
        self.pieces: Pieces = ()
        self.readings: tuple[Reading, ...] = ()
        self.parallel: ParallelContext | None = None
        self.stored: Pieces = ()

    def room(self, layer: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Views `[heads, tokens, dim]` of one layer to write the next `tokens` tokens into."""
        return self.get(layer, self.length, self.length + tokens)

    def get(self, layer: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Views of the keys and values `[heads, stop - start, dim]` of one layer."""
        pool = self.pool
        return pool.keys[layer][self.index, :, start:stop], pool.values[layer][self.index, :, start:stop]

    def put(self, layer: int, start: int, keys: Tensor, values: Tensor) -> None:
        """Write keys and values `[heads, n, dim]` of one layer as tokens start … start + n."""
        own_keys, own_values = self.get(layer, start, start + keys.shape[1])
        own_keys[:], own_values[:] = keys, values

    def all(self, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The views that `get` returns, of every layer in order."""
        return (self.get(layer, start, stop) for layer in range(len(self.pool.keys)))

    def place(self, start: int, positions: Tensor) -> None:
        """Write the logical positions of tokens start … start + n, before their keys and values."""
        self.touched = max(self.touched, start + len(positions))
        self.pool.positions[self.index, start : start + len(positions)] = positions

    def positions(self, stop: int) -> Tensor:
        """Logical positions of the first `stop` tokens."""
        return self.pool.positions[self.index, :stop]


class SharedRun:
    """Pieces in a slot of their own, at the positions of its first reader. `readers`: the number of readings of it that
    rows have. `claimed`: one of these rows has gathered it, or does so in this forward."""

    def __init__(self, pieces: Pieces, slot: Slot) -> None:
        self.pieces, self.slot, self.tokens = pieces, slot, tokens(pieces)
        self.readers, self.claimed = 0, False


class Reading(NamedTuple):
    """The tokens start … stop of a run as one row reads them, moved by `shift` positions from where they were
    gathered."""

    run: SharedRun
    start: int
    stop: int
    shift: int

    @property
    def span(self) -> tuple[SharedRun, int, int]:
        """What it reads, regardless of position."""
        return self.run, self.start, self.stop


class PoolKind(NamedTuple):
    """The rows that share a pool. A pool that is `alone` has one row for good, so that its shapes and its alignment
    depend on that row only. Rows that do not take part in every step (shadows) are `apart` from those that do, whose
    steps would read the shadows' contexts too. Rows that also read shared runs in place are in pools `beside` the
    others. All rows that read their contexts from pages (`stored`) are in one pool, a `lanes.LanePool`."""

    capacity: int
    alone: bool = False
    apart: bool = False
    beside: bool = False
    stored: bool = False

    @property
    def reads(self) -> Reads:
        """Where its rows read their contexts."""
        return "pages" if self.stored else "shared" if self.beside else "copy"


class SlotPool:
    """Rows of one kind. `keys[layer]` and `values[layer]` are `[rows, heads, capacity, dim]`, `positions` is `[rows,
    capacity]`. `several`: a step can take several tokens of one row."""

    def __init__(
        self,
        layers: list[LayerShape],
        kind: PoolKind,
        device: torch.device,
        dtype: torch.dtype,
        several: bool = True,
    ) -> None:
        self.kind, self.reads = kind, kind.reads
        self.capacity, self.several = kind.capacity, several
        self.serial = next(serials)
        self.slots: list[Slot] = []
        places = [(shape, shape.device or device) for shape in layers]
        self.keys = [zeros((1, s.heads, kind.capacity, s.key_dim), at, dtype) for s, at in places]
        self.values = [zeros((1, s.heads, kind.capacity, s.value_dim), at, dtype) for s, at in places]
        self.positions = torch.zeros(1, kind.capacity, device=device, dtype=torch.long)
        self._reached = [0]

    @property
    def tokens(self) -> int:
        """The number of tokens that it takes memory for: on a CPU those that were ever written, elsewhere its full
        capacity."""
        return sum(self._reached) if self.positions.device.type == "cpu" else self.positions.numel()

    def open(self) -> Slot:
        """Return a new slot, all zeros."""
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
        """Add rows: quadruple them while rows are cheap, because a pool that fills up usually does so quickly; else
        double."""
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


def tokens(pieces: Iterable[ContextPiece]) -> int:
    """The number of tokens of these pieces."""
    return sum(piece.entry.length for piece in pieces)


def padded(width: int, capacity: int) -> int:
    """The width to pass on for slots of this capacity, where `width` tokens are needed and shapes should rarely
    change."""
    return min(capacity, -(-width // PADDED) * PADDED)
