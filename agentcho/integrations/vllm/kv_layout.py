"""Reads and writes keys and values in the blocks of vLLM's cache, whatever the layout of its attention backend.

A backend may order the numbers within a block in its own way. Writes use the backend's own operation. Where it puts
each number is found out once, by writing numbers that encode their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from agentcho.errors import UnsupportedModel

DIGIT = 64
"""Base of the digits in which places are written; every dtype of a cache can tell such digits apart."""


class BlockLayout:
    """The cache of one attention layer. `layer`: vLLM's layer; `cache`: its tensor, blocks first.

    `UnsupportedModel`: written values cannot be found again, so nothing could be read.
    """

    def __init__(self, model: str, layer: Any, cache: Tensor, block: int) -> None:
        self._layer = layer
        self.cache, self.block = cache, block
        self.heads, self.dim = layer.num_kv_heads, layer.head_size
        self.keys, self.values = (self._places(which) for which in range(2))
        if self.keys is None or self.values is None:
            raise UnsupportedModel(
                model,
                f"the attention backend {type(layer.impl).__name__} keeps keys and values in an unknown layout",
                "Choose another backend with VLLM_ATTENTION_BACKEND, or use agentcho's own engine",
            )

    @property
    def backend(self) -> Any:
        """vLLM's attention backend."""
        return self._layer.impl

    def write(self, keys: Tensor, values: Tensor, slots: Tensor) -> None:
        """Write keys and values `[tokens, heads, dim]` into these slots, with the backend's own operation."""
        self._layer.impl.do_kv_cache_update(self._layer, keys, values, self.cache, slots)

    def read(self, blocks: Sequence[int], start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Keys and values `[tokens, heads, dim]` of slots `start` to `stop` of a request with these blocks."""
        first, last = start // self.block, -(-stop // self.block)
        chosen = self.cache[torch.tensor(blocks[first:last], device=self.cache.device)].flatten(1)
        span = slice(start - first * self.block, stop - first * self.block)
        assert self.keys is not None
        assert self.values is not None
        keys, values = (chosen[:, places].view(-1, self.heads, self.dim)[span] for places in (self.keys, self.values))
        return keys, values

    def _places(self, which: int) -> Tensor | None:
        """The place in a block of each number `[token, head, dim]` of its keys (0) or values (1). None: not found."""
        cache, count = self.cache, self.block * self.heads * self.dim
        one = torch.zeros((1, *cache.shape[1:]), dtype=cache.dtype, device=cache.device)
        slots = torch.arange(self.block, device=cache.device)
        shape = (self.block, self.heads, self.dim)
        ids = torch.arange(count, device=cache.device).view(shape)
        found = torch.zeros(one.numel(), dtype=torch.long, device=cache.device)
        seen = torch.zeros(one.numel(), dtype=torch.bool, device=cache.device)
        power, digits = 1, 0
        while power < count or digits == 0:
            digit = (ids // power % DIGIT + 1).to(cache.dtype)
            empty = torch.zeros_like(digit)
            one.zero_()
            pair = (digit, empty) if which == 0 else (empty, digit)
            self._layer.impl.do_kv_cache_update(self._layer, *pair, one, slots)
            flat = one.reshape(-1).float().round().long()
            seen |= flat > 0
            found += torch.where(flat > 0, (flat - 1) * power, 0)
            power, digits = power * DIGIT, digits + 1
        places = seen.nonzero().flatten()
        if len(places) != count or not torch.equal(
            found[places].sort().values, torch.arange(count, device=cache.device)
        ):
            return None
        where = torch.empty(count, dtype=torch.long, device=cache.device)
        where[found[places]] = places
        return where
