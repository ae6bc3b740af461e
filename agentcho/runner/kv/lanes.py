"""The pool of all rows that read their contexts where they are stored.

A table gives for each row what it reads in the pages of the store. A row's own tokens are in lanes: blocks of tokens
that it gets as it generates. So the pool's tensors stay in place while rows begin, grow and end, and a captured forward
over them serves other steps. Row 0 and block 0 are reserved for the padding tokens of a forward. Independent of
attention and of captured graphs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from agentcho.engine.call_layout import ContextPiece
from agentcho.errors import CallFailed
from agentcho.runner.kv.decode_kv import PoolKind, Slot, SlotPool, serials, tokens
from agentcho.runner.kv.kv_pool import KVFormat, LayerShape, token_bytes, zeros
from agentcho.runner.kv.page_tables import Tables
from agentcho.runner.model.device import SPARE, has_room

LANE = 128
"""The number of tokens in a block."""
MANY = 64
"""The number of rows that a GPU has room for from the beginning."""
SHARE = 8
"""On a GPU, lanes have room for the number of the store's tokens divided by this."""
LEAST = 1 << 28
"""The bytes that must stay free for forwards when more blocks are allocated."""
ROWS = 8
"""The initial number of rows in tables, by default."""


class Room(NamedTuple):
    """The capacity of a pool before its tensors must be replaced: rows, blocks of lanes, and the tokens that one row
    reads."""

    rows: int = ROWS
    blocks: int = 2 * ROWS
    width: int = 256


def lane_room(
    layers: list[LayerShape], device: torch.device, dtype: torch.dtype, store_tokens: int, context: int
) -> Room:
    """The initial capacity for an engine. On a GPU it is chosen so that the pool rarely grows: `MANY` rows, lanes for a
    share of the store's tokens (halved until it fits in memory), and tables for the whole `context`. Elsewhere memory
    is allocated on demand."""
    if device.type != "cuda":
        return Room()
    a_block, blocks = LANE * token_bytes(layers, dtype), store_tokens // SHARE // LANE
    while blocks > Room().blocks and not has_room(device, blocks * a_block):
        blocks //= 2
    return Room(MANY + 1, max(blocks, Room().blocks), context)


class LaneSlot(Slot):
    """The place of one row, which has the lanes `blocks`. `reading`: the number of tokens that it reads where they are
    stored."""

    scattered = True
    pool: LanePool

    def __init__(self, pool: LanePool, index: int) -> None:
        super().__init__(pool, index)
        self.blocks = list[int]()
        self.reading = self.capacity = 0

    def get(self, layer: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """See `Slot.get`; returns copies."""
        keys, values = self.pool.keys[layer], self.pool.values[layer]
        spans = list(self._spans(start, stop))
        if not spans:
            return keys[0, :, :0], values[0, :, :0]
        found = [torch.cat([x[block, :, place] for block, place, _ in spans], 1) for x in (keys, values)]
        return found[0], found[1]

    def put(self, layer: int, start: int, keys: Tensor, values: Tensor) -> None:
        """See `Slot.put`."""
        for block, place, given in self._spans(start, start + keys.shape[1]):
            self.pool.keys[layer][block, :, place] = keys[:, given]
            self.pool.values[layer][block, :, place] = values[:, given]

    def place(self, start: int, positions: Tensor) -> None:
        """See `Slot.place`."""
        for block, place, given in self._spans(start, start + len(positions)):
            self.pool.positions[block, place] = positions[given]

    def positions(self, stop: int) -> Tensor:
        """See `Slot.positions`."""
        found = [self.pool.positions[block, place] for block, place, _ in self._spans(0, stop)]
        return torch.cat(found) if found else self.pool.positions[0, :0]

    def _spans(self, start: int, stop: int) -> Iterator[tuple[int, slice, slice]]:
        """The tokens start … stop, by block: the block's number, its slice, and the matching slice of start … stop."""
        at = start
        while at < stop:
            nth, first = divmod(at, LANE)
            count = min(stop - at, LANE - first)
            yield self.blocks[nth], slice(first, first + count), slice(at - start, at - start + count)
            at += count


class LanePool(SlotPool):
    """All rows that read their contexts where they are stored. `keys[layer]` is `[blocks, heads, LANE, dim]`,
    `positions` is `[blocks, LANE]`. `tables`: what each row reads. `lanes`: the blocks of each row `[rows, most]`,
    int32. `serial` changes whenever one of these tensors is replaced."""

    slots: list[LaneSlot]  # type: ignore[assignment]
    tables: Tables
    lanes: Tensor

    def __init__(
        self, layers: list[LayerShape], device: torch.device, dtype: torch.dtype, several: bool, room: Room
    ) -> None:
        self.kind = PoolKind(LANE, stored=True)
        self.reads, self.capacity = self.kind.reads, LANE
        self.several = several
        self.slots, self._layers = [], layers
        self._device, self._dtype = device, dtype
        self._format = KVFormat(layers, device, dtype)
        self._places = {shape.device or device for shape in layers}
        self._stacks = dict[tuple[int, int, torch.device], Tensor]()
        self._made(max(2, room.blocks))
        self.tables = Tables(room.width, device, max(2, room.rows))
        self.lanes = torch.zeros(max(2, room.rows), 1 + room.width // LANE, device=device, dtype=torch.int32)
        self._free_blocks = [*range(len(self.positions) - 1, 0, -1)]
        self._free_rows = [*range(len(self.lanes) - 1, 0, -1)]

    @property
    def tokens(self) -> int:
        """See `SlotPool.tokens`."""
        return len(self.positions) * LANE

    def open(self) -> LaneSlot:
        """Return a new row, which reads nothing and has no lanes."""
        if not self._free_rows:
            rows = len(self.lanes)
            self.tables.widen(2 * rows)
            self.lanes = torch.cat([self.lanes, torch.zeros_like(self.lanes)])
            self._free_rows = [*range(2 * rows - 1, rows - 1, -1)]
            self.serial = next(serials)
        slot = LaneSlot(self, self._free_rows.pop())
        self.slots.append(slot)
        return slot

    def read(self, slot: LaneSlot, pieces: Sequence[ContextPiece]) -> None:
        """Set the pieces that a new row reads. They must have their pages."""
        slot.reading = tokens(pieces)
        if slot.reading > self.tables.width:
            self.tables.broaden(slot.reading)
            self.serial = next(serials)
        self.tables.write(slot.index, pieces)

    def ensure(self, slot: LaneSlot, length: int) -> None:
        """Give a row lanes for `length` tokens."""
        missing = -(-length // LANE) - len(slot.blocks)
        if missing <= 0:
            return
        if missing > len(self._free_blocks):
            self._grow(missing - len(self._free_blocks))
        first, more = len(slot.blocks), [self._free_blocks.pop() for _ in range(missing)]
        slot.blocks += more
        slot.capacity = len(slot.blocks) * LANE
        if len(slot.blocks) > self.lanes.shape[1]:
            self.lanes = torch.cat([self.lanes, *[torch.zeros_like(self.lanes)] * 3], 1)
            self.serial = next(serials)
        while len(slot.blocks) > self.lanes.shape[1]:
            self.lanes = torch.cat([self.lanes, torch.zeros_like(self.lanes)], 1)
        self.lanes[slot.index, first : len(slot.blocks)] = torch.tensor(more, dtype=torch.int32).to(self.lanes.device)

    def _grow(self, missing: int) -> None:
        """Add blocks: double them until `missing` more fit, or add just that many if memory is short. Raises
        `CallFailed` if there is no memory for these either, and changes nothing."""
        had = len(self.positions)
        wide = next(had << times for times in range(1, 64) if had << times >= had + missing)
        for blocks, spare in ((wide, SPARE), (had + missing, LEAST)):
            if all(has_room(at, blocks * LANE * self._format.bytes_on(at), spare) for at in self._places):
                self._made(blocks)
                self._free_blocks[:0] = range(blocks - 1, had - 1, -1)
                return
        raise CallFailed.memory(missing * LANE, str(self._device))

    def close(self, slot: Slot) -> None:
        """Give a row up. Its blocks are zeroed, so that no data remains behind another row's mask."""
        assert isinstance(slot, LaneSlot)
        self.slots.remove(slot)
        self.tables.clear(slot.index)
        if slot.blocks:
            for device in {at for _, _, at in self._stacks}:
                blocks = torch.tensor(slot.blocks).to(device)
                for (_, _, at), stack in self._stacks.items():
                    if at == device:
                        stack.index_fill_(1, blocks, 0)
        self._free_blocks += reversed(slot.blocks)
        self._free_rows.append(slot.index)
        slot.blocks = []

    def locate(self, rows: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        """The block and the place in it, in `keys[layer]`, `values[layer]` and `positions`, of tokens of these rows.
        `ends`: the places of the tokens in their rows."""
        return self.lanes[rows, ends // LANE].long(), ends % LANE

    def _made(self, blocks: int) -> None:
        """Allocate `blocks` blocks and keep the content. Layers of one shape share a tensor."""
        old, stacks = self._stacks, dict[tuple[int, int, torch.device], Tensor]()
        places = [(shape, shape.device or self._device) for shape in self._layers]
        kinds = [(s.heads, dim, at) for s, at in places for dim in (s.key_dim, s.value_dim)]
        for kind in dict.fromkeys(kinds):
            heads, dim, at = kind
            stack = zeros((kinds.count(kind), blocks, heads, LANE, dim), at, self._dtype)
            if old:
                stack[:, : old[kind].shape[1]] = old[kind]
            stacks[kind] = stack
        positions = torch.zeros(blocks, LANE, device=self._device, dtype=torch.long)
        if old:
            positions[: len(self.positions)] = self.positions
        self._stacks, self.positions = stacks, positions
        views = {kind: iter(stack.unbind(0)) for kind, stack in stacks.items()}
        found = [next(views[kind]) for kind in kinds]
        self.keys, self.values = found[::2], found[1::2]
        self.serial = next(serials)
