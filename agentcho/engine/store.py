"""The paged store: keys and values of encodings, in fixed-size pages, counted by reference.

A block is the pages of one encoding. It is written once and never changed; it is freed when nothing holds it.
Does not know: messages, positions, which block belongs to whom.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from agentcho.errors import StoreFull


class LayerShape(NamedTuple):
    """Shapes of one layer's cache: key-value heads, key dimension, value dimension."""

    heads: int
    key_dim: int
    value_dim: int


class Fullness(NamedTuple):
    """How full the store is, in pages. `reserved` pages are promised to running calls and not yet written."""

    used: int
    reserved: int
    limit: int
    page_tokens: int
    high_water: int


@dataclass(eq=False)
class Block:
    """The pages of one encoding of `length` tokens. `slots` are its token rows in the pools, in order."""

    pages: list[int]
    length: int
    slots: Tensor
    holders: int = 1


class Store:
    """Pools of pages, one pair a layer, growing on demand up to `limit_tokens`."""

    def __init__(
        self,
        layers: list[LayerShape],
        limit_tokens: int,
        device: torch.device,
        dtype: torch.dtype,
        page_tokens: int = 16,
    ) -> None:
        self._layers, self._device, self._dtype = layers, device, dtype
        self._page = page_tokens
        self._limit = max(1, limit_tokens // page_tokens)
        self._allocated = 0
        self._free: list[int] = []
        self._reserved = self._high_water = 0
        self._keys = [self._rows(0, shape.heads, shape.key_dim) for shape in layers]
        self._values = [self._rows(0, shape.heads, shape.value_dim) for shape in layers]

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self._layers)

    @property
    def fullness(self) -> Fullness:
        """Pages used, reserved, allowed, and the most ever used."""
        used = self._allocated - len(self._free)
        return Fullness(used, self._reserved, self._limit, self._page, self._high_water)

    def pages_for(self, tokens: int) -> int:
        """Pages that an encoding of `tokens` tokens takes."""
        return -(-tokens // self._page)

    def reserve(self, tokens: int) -> int:
        """Promise room for `tokens` tokens; returns the pages promised. `StoreFull`: nothing was promised."""
        pages = self.pages_for(tokens)
        free = self._limit - self.fullness.used - self._reserved
        if pages > free:
            raise StoreFull(pages, free, self._page)
        self._reserved += pages
        return pages

    def unreserve(self, pages: int) -> None:
        """Take a promise back."""
        self._reserved -= pages
        assert self._reserved >= 0

    def allocate(self, length: int) -> Block:
        """A block for `length` tokens, held once, to be written next. `StoreFull` where no room is left."""
        count = self.pages_for(length)
        self.unreserve(self.reserve(length))
        if count > len(self._free):
            self._grow(count - len(self._free))
        pages = [self._free.pop() for _ in range(count)]
        self._high_water = max(self._high_water, self.fullness.used)
        rows = torch.tensor(pages).repeat_interleave(self._page) * self._page
        rows += torch.arange(self._page).repeat(count)
        return Block(pages, length, rows[:length].to(self._device))

    def write(self, block: Block, layer: int, keys: Tensor, values: Tensor, start: int = 0) -> None:
        """Store keys and values `[heads, n, dim]` of one layer as tokens start … start + n. Once a layer and token."""
        rows = block.slots[start : start + keys.shape[1]]
        self._keys[layer][rows] = keys.transpose(0, 1)
        self._values[layer][rows] = values.transpose(0, 1)

    def read(self, block: Block, layer: int) -> tuple[Tensor, Tensor]:
        """Copies of keys and values, `[heads, length, dim]`, at the position they were encoded at."""
        return self.gather(block.slots, layer)

    def gather(self, rows: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """The same for the slots of any tokens, of several blocks together."""
        keys = self._keys[layer].index_select(0, rows)
        values = self._values[layer].index_select(0, rows)
        return keys.transpose(0, 1), values.transpose(0, 1)

    def hold(self, block: Block) -> None:
        """Count one more holder."""
        block.holders += 1

    def release(self, block: Block) -> None:
        """Count one holder less; the last one frees the pages."""
        block.holders -= 1
        assert block.holders >= 0
        if block.holders == 0:
            self._free.extend(block.pages)

    def _rows(self, rows: int, heads: int, dim: int) -> Tensor:
        return torch.zeros(rows, heads, dim, device=self._device, dtype=self._dtype)

    def _grow(self, pages: int) -> None:
        pages = min(max(pages, self._allocated, 64), max(pages, self._limit - self._allocated))
        for pool in (self._keys, self._values):
            for layer, old in enumerate(pool):
                pool[layer] = torch.cat([old, self._rows(pages * self._page, *old.shape[1:])])
        self._free.extend(range(self._allocated + pages - 1, self._allocated - 1, -1))
        self._allocated += pages


def default_tokens(layers: list[LayerShape], device: torch.device, dtype: torch.dtype) -> int:
    """Tokens that fit in 4 GiB on a CPU, or in half of the free memory on CUDA."""
    room = torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else 4 << 30
    size = torch.empty(0, dtype=dtype).element_size()
    token = sum(shape.heads * (shape.key_dim + shape.value_dim) for shape in layers) * size
    return max(1024, min(room // token, 1 << 22))
