"""The rows that read their contexts where they are stored: all of them in one pool, whatever they read and say.

A table says what each row reads in the pages of the store. What it says itself is in lanes: blocks of tokens that are
given to it as it speaks. So the tensors of the pool stay what they are while rows come, grow and go, and a captured
forward over them serves other steps. Row 0 and block 0 are nobody's: tokens that fill a forward up are theirs. Does not
know: which rows there are, attention, what is captured.
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
"""Tokens of a block."""
MANY = 64
"""Rows for which there is room on a GPU from the beginning."""
SHARE = 8
"""What part of the tokens of the store lanes have room for there."""
LEAST = 1 << 28
"""Bytes that must stay free for forwards where more blocks are taken."""
ROWS = 8
"""Rows for which there are tables at first, where it is not said."""


class Room(NamedTuple):
    """For what there is room before a pool must get other tensors: rows, blocks of lanes, and tokens that one row
    reads."""

    rows: int = ROWS
    blocks: int = 2 * ROWS
    width: int = 256


def lane_room(
    layers: list[LayerShape], device: torch.device, dtype: torch.dtype, store_tokens: int, context: int
) -> Room:
    """The room of an engine. On a GPU it is such that it is seldom too little: for `MANY` rows, for lanes of a share of
    the tokens of the store, or of half of that, and so on, where there is not so much memory, and for tables of the
    whole `context`. Elsewhere memory is taken as it is needed."""
    if device.type != "cuda":
        return Room()
    a_block, blocks = LANE * token_bytes(layers, dtype), store_tokens // SHARE // LANE
    while blocks > Room().blocks and not has_room(device, blocks * a_block):
        blocks //= 2
    return Room(MANY + 1, max(blocks, Room().blocks), context)


class LaneSlot(Slot):
    """The place of one row, which has the lanes `blocks`. `reading`: how many tokens it reads where they are stored."""

    scattered = True
    pool: LanePool

    def __init__(self, pool: LanePool, index: int) -> None:
        super().__init__(pool, index)
        self.blocks = list[int]()
        self.reading = self.capacity = 0

    def get(self, layer: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """See `Slot.get`; copies, where they are in several blocks."""
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
        """The tokens start … stop: of each block its number, its tokens, and which of these they are."""
        at = start
        while at < stop:
            nth, first = divmod(at, LANE)
            count = min(stop - at, LANE - first)
            yield self.blocks[nth], slice(first, first + count), slice(at - start, at - start + count)
            at += count


class LanePool(SlotPool):
    """All rows that read their contexts where they are stored. `keys[layer]` is `[blocks, heads, LANE, dim]`,
    `positions` is `[blocks, LANE]`. `tables`: what each row reads. `lanes`: the blocks of each row `[rows, most]`,
    int32. `serial` is another where any of these tensors is."""

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
        """A new row, which reads nothing and has no lane."""
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
        """Say that a new row reads these pieces, which have their pages."""
        slot.reading = tokens(pieces)
        if slot.reading > self.tables.width:
            self.tables.broaden(slot.reading)
            self.serial = next(serials)
        self.tables.write(slot.index, pieces)

    def ensure(self, slot: LaneSlot, length: int) -> None:
        """Give a row lanes for so many tokens."""
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
        """Have so many blocks more: twice as many as there are, or as few as that where memory is short. `CallFailed`:
        there is no memory for these either, and all is as it was."""
        had = len(self.positions)
        wide = next(had << times for times in range(1, 64) if had << times >= had + missing)
        for blocks, spare in ((wide, SPARE), (had + missing, LEAST)):
            if all(has_room(at, blocks * LANE * self._format.bytes_on(at), spare) for at in self._places):
                self._made(blocks)
                self._free_blocks[:0] = range(blocks - 1, had - 1, -1)
                return
        raise CallFailed.memory(missing * LANE, str(self._device))

    def close(self, slot: Slot) -> None:
        """Give a row up. What it has written is zeros again, so that nothing of it stands behind a mask of another."""
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
        """Where tokens of these rows are in `keys[layer]`, `values[layer]` and `positions`: of each the block and its
        place there. `ends`: their places in their rows."""
        return self.lanes[rows, ends // LANE].long(), ends % LANE

    def _made(self, blocks: int) -> None:
        """Have so many blocks; what is there stays. Layers of one shape are in one tensor."""
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
