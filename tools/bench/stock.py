"""A stock cached forward of one token per row, with which a decode step is compared."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
from transformers import DynamicCache

from agentcho.lab.bench.peers.prefixes import taking


class StockRows:
    """Rows that all continue the same ids, one cached forward per step. Use within `stock_attention`, in one thread
    with the engine's steps."""

    @torch.inference_mode()
    def __init__(self, network: Any, ids: tuple[int, ...], rows: int) -> None:
        self._network, self._place = network, len(ids)
        self._cache = DynamicCache()
        network(
            input_ids=torch.tensor([ids], device=network.device),
            use_cache=True,
            logits_to_keep=1,
            **taking(network, self._cache),
        )
        self._cache.batch_repeat_interleave(rows)
        self._next = torch.full((rows, 1), ids[-1], device=network.device)

    @torch.inference_mode()
    def step(self) -> float:
        """Seconds of one forward with its greedy choice. The same token is fed in every row."""
        began = perf_counter()
        out = self._network(
            input_ids=self._next,
            position_ids=torch.full_like(self._next, self._place),
            use_cache=True,
            logits_to_keep=1,
            **taking(self._network, self._cache),
        )
        out.logits[:, -1].argmax(-1).tolist()
        self._place += 1
        return perf_counter() - began
