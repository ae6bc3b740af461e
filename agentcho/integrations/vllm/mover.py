"""Moves keys and values between a store of encodings and vLLM's cache, and rotates keys on the way.

Moves are described by numbers alone, so that they can be sent to another process. Independent of requests and calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from agentcho.integrations.vllm.kv_layout import BlockLayout
from agentcho.runner.kv.rope import Rotation, Workspace

Written = list[tuple[int, int]]
"""What was written into the slots of a request: position and number of tokens of each encoding, in order."""


class Read(NamedTuple):
    """An encoding that a request reads: its number of tokens, the positions by which its keys move, and its position
    there."""

    length: int
    turn: int
    offset: int


class Load(NamedTuple):
    """What fills the first slots of a request.

    Attributes:
        blocks: The request's blocks in vLLM's cache, in order.
        rows: The rows of the store that hold the tokens, in the order of the slots.
        reads: The encodings that these tokens belong to, in the same order.
    """

    blocks: tuple[int, ...]
    rows: Tensor
    reads: tuple[Read, ...]


class Save(NamedTuple):
    """What a request has computed, and where it goes.

    Attributes:
        blocks: The request's blocks in vLLM's cache, in order.
        start: The first slot that is saved.
        rows: The rows of the store for the tokens from there on.
        turn: The positions by which the keys move.
    """

    blocks: tuple[int, ...]
    start: int
    rows: Tensor
    turn: int


class KVStore(Protocol):
    """The rows of a store, for the layers and heads of one mover. See `PagePool`."""

    def gather(self, rows: Tensor, layer: int, workspace: Workspace) -> tuple[Tensor, Tensor]: ...
    def put(self, rows: Tensor, layer: int, keys: Tensor, values: Tensor) -> None: ...


class MovesKV(Protocol):
    """What the runner needs of a `Mover`, or of several together."""

    @property
    def device(self) -> torch.device: ...
    def save(self, save: Save) -> None: ...
    def turn_errors(self, blocks: Sequence[int], count: int) -> list[float]: ...
    def probe(self) -> None: ...


class Mover:
    """Moves keys and values of the layers that one process has.

    Args:
        layouts: The cache of each layer, in the order of the layers.
        rotations: The rotation of each layer's keys.
        store: The store.
    """

    def __init__(self, layouts: Sequence[BlockLayout], rotations: Sequence[Rotation], store: KVStore) -> None:
        self.layouts, self.rotations = layouts, rotations
        self._store, self._workspace = store, Workspace()

    @property
    def device(self) -> torch.device:
        """The device of vLLM's cache."""
        return self.layouts[0].cache.device

    def load(self, load: Load) -> Written:
        """Write encodings into the slots of a request, each rotated to its position there; return what was written.
        `ValueError`: the number of rows is not the number of tokens."""
        tokens = sum(read.length for read in load.reads)
        if len(load.rows) != tokens:
            raise ValueError(f"{len(load.rows)} rows of the store are told for {tokens} tokens")
        if not tokens:
            return []
        slots = self._slots(load.blocks, tokens)
        by = torch.cat([torch.full((read.length,), read.turn) for read in load.reads])
        angles = {rotation: rotation.angles(by, self.device) for rotation in set(self.rotations)} if by.any() else {}
        for layer, (layout, rotation) in enumerate(zip(self.layouts, self.rotations, strict=True)):
            keys, values = self._store.gather(load.rows, layer, self._workspace)
            if rotation in angles:
                rotation.turn_into(keys, keys, angles[rotation], self._workspace)
            layout.write(keys.transpose(0, 1).contiguous(), values.transpose(0, 1).contiguous(), slots)
        return [(read.offset, read.length) for read in load.reads]

    def save(self, save: Save) -> None:
        """Copy what a request has computed into the store."""
        stop = save.start + len(save.rows)
        for layer, (layout, rotation) in enumerate(zip(self.layouts, self.rotations, strict=True)):
            keys, values = layout.read(save.blocks, save.start, stop)
            turned = rotation.turn(keys.transpose(0, 1), save.turn)
            self._store.put(save.rows, layer, turned, values.transpose(0, 1))

    def turn_errors(self, blocks: Sequence[int], count: int) -> list[float]:
        """How far keys are from being rotated as their layer's rotation says, by layer, as a share of the largest key.
        The first `count` slots of these blocks hold one repeated token."""
        found = []
        for layout, rotation in zip(self.layouts, self.rotations, strict=True):
            keys = layout.read(blocks, 0, count)[0].transpose(0, 1).float()
            turned = torch.cat([rotation.turn(keys[:, :1], place) for place in range(count)], 1)
            found.append(float((turned - keys).abs().max() / keys.abs().max().clamp(min=1e-6)))
        return found

    def probe(self) -> None:
        """Do a trivial operation on the device. Raises what that raises."""
        assert torch.ones(2, device=self.device).sum().item() == 2

    def _slots(self, blocks: Sequence[int], count: int) -> Tensor:
        """The slot numbers in vLLM's cache of a request's first `count` slots."""
        at = torch.arange(count)
        size = self.layouts[0].block
        return (torch.tensor(blocks)[at // size] * size + at % size).to(self.device)
