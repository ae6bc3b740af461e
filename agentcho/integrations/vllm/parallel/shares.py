"""A store of encodings in memory shared by several processes, and the part of it that each reads and writes.

The store has all heads of all layers, like that of a single process. A rank copies its heads in the layers of its
stage. Must not import vLLM.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from agentcho.errors import ModelError
from agentcho.runner.kv.kv_pool import ALIGNED, LayerShape, PagePool
from agentcho.runner.kv.rope import Workspace

CPU = torch.device("cpu")
WRITABLE = mmap.PROT_READ | mmap.PROT_WRITE


class Heads(NamedTuple):
    """The key-value heads of one rank: `number` of them, starting at `first`. `writes`: whether this rank stores them,
    if several ranks have the same."""

    first: int
    number: int
    writes: bool

    @classmethod
    def of(cls, rank: int, ranks: int, total: int) -> Heads:
        """The heads of a tensor-parallel rank among `ranks`, as vLLM divides a model with `total` heads: evenly, or
        each head to the same number of neighboring ranks."""
        if total >= ranks:
            number = total // ranks
            return cls(rank * number, number, writes=True)
        copies = ranks // total
        return cls(rank // copies, 1, rank % copies == 0)


class StoreHandle(NamedTuple):
    """What another process needs to open a store: the path of its memory, the shapes of its layers, its number of rows
    and their dtype, and the shape of the logits that it has room for."""

    path: str
    layers: tuple[tuple[int, int, int], ...]
    rows: int
    dtype: torch.dtype
    logits: tuple[int, int]

    def shapes(self) -> list[tuple[tuple[int, int, int] | tuple[int, int], torch.dtype]]:
        """Shapes and dtypes of all tensors in the memory: keys of each layer, values of each layer, logits."""
        keys = [(self.rows, heads, dim) for heads, dim, _ in self.layers]
        values = [(self.rows, heads, dim) for heads, _, dim in self.layers]
        return [*((shape, self.dtype) for shape in (*keys, *values)), (self.logits, torch.float32)]

    @property
    def size(self) -> int:
        """The size of all tensors in bytes."""
        return sum(_aligned(shape, dtype) for shape, dtype in self.shapes())

    def tensors(self, file: int) -> SharedTensors:
        """The tensors in the memory that is open as this file."""
        raw = torch.frombuffer(mmap.mmap(file, self.size, mmap.MAP_SHARED, WRITABLE), dtype=torch.uint8)
        found, start = list[Tensor](), 0
        for shape, dtype in self.shapes():
            found.append(raw[start : start + math.prod(shape) * dtype.itemsize].view(dtype).view(shape))
            start += _aligned(shape, dtype)
        count = len(self.layers)
        return SharedTensors(found[:count], found[count : 2 * count], found[-1])

    def opened(self) -> SharedTensors:
        """The same tensors in a process that received this handle."""
        file = os.open(self.path, os.O_RDWR)
        try:
            return self.tensors(file)
        finally:
            os.close(file)


class SharedTensors(NamedTuple):
    """Keys and values `[rows, heads, dim]` of each layer, and logits `[requests, vocabulary]` of one step."""

    keys: list[Tensor]
    values: list[Tensor]
    logits: Tensor


def _aligned(shape: Sequence[int], dtype: torch.dtype) -> int:
    return -(-math.prod(shape) * dtype.itemsize // ALIGNED) * ALIGNED


class SharedPool(PagePool):
    """A `PagePool` in memory that other processes open through its `handle`. The memory has no name in a file system,
    and is freed with the last process that has it open.

    `ModelError`: the system provides no such memory.
    """

    def __init__(
        self, layers: list[LayerShape], limit_tokens: int, dtype: torch.dtype, logits: tuple[int, int]
    ) -> None:
        self._room = logits
        self._file: int | None = None
        super().__init__(layers, limit_tokens, CPU, dtype)

    def _pools(self, rows: int) -> tuple[list[Tensor], list[Tensor]]:
        shapes = tuple((layer.heads, layer.key_dim, layer.value_dim) for layer in self._layers)
        try:
            self._file = os.memfd_create("agentcho-store", os.MFD_CLOEXEC)
            path = f"/proc/{os.getpid()}/fd/{self._file}"
            self.handle = StoreHandle(path, layers=shapes, rows=rows, dtype=self.dtype, logits=self._room)
            os.ftruncate(self._file, self.handle.size)
            found = self.handle.tensors(self._file)
        except (AttributeError, OSError, ValueError) as error:
            self.close()
            raise ModelError(
                f"the system provides no shared memory for a store of {rows} tokens ({error}); use Linux, a "
                "smaller store (store_tokens), or one rank"
            ) from error
        self.logits = found.logits
        return found.keys, found.values

    def close(self) -> None:
        """Let no further process open it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class RankStore:
    """The part of a shared store that belongs to one rank. See `KVStore`.

    Args:
        shared: The tensors of the store.
        first: The first layer of the rank's stage.
        heads: Its heads.
        device: The device that it computes on.
    """

    def __init__(self, shared: SharedTensors, first: int, heads: Heads, device: torch.device) -> None:
        part = slice(heads.first, heads.first + heads.number)
        self._keys = [pool[:, part] for pool in shared.keys[first:]]
        self._values = [pool[:, part] for pool in shared.values[first:]]
        self._writes, self._device = heads.writes, device

    def gather(self, rows: Tensor, layer: int, workspace: Workspace) -> tuple[Tensor, Tensor]:
        """Copies of keys and values `[heads, rows, dim]` on the rank's device."""
        keys = self._selected(self._keys[layer], rows, workspace, "keys")
        return keys, self._selected(self._values[layer], rows, workspace, "values")

    def _selected(self, pool: Tensor, rows: Tensor, workspace: Workspace, name: str) -> Tensor:
        out = workspace.take(name, (len(rows), *pool.shape[1:]), CPU, pool.dtype)
        return torch.index_select(pool, 0, rows, out=out).to(self._device).transpose(0, 1)

    def put(self, rows: Tensor, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store keys and values `[heads, rows, dim]`, unless another rank stores these heads."""
        if self._writes:
            self._keys[layer][rows] = keys.transpose(0, 1).to(CPU)
            self._values[layer][rows] = values.transpose(0, 1).to(CPU)
