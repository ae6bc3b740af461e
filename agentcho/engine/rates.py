"""What this machine can do, measured: bytes a second of weights that stream through a product, operations a second of a
large one; and what a model's steps need of both.

Does not know: engines, what a step took.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import linear

STREAMED = 256 * 2**20
"""Bytes of the weights that stream: far more than any cache holds."""
WIDE = 1024
"""Columns and rows of the matrices."""


class Rates(NamedTuple):
    """Bytes a second, operations a second (a multiplication and an addition are two)."""

    bytes: float
    operations: float


class Work(NamedTuple):
    """What a forward needs: bytes of weights, keys and values read; operations."""

    bytes: float
    operations: float

    def least(self, rates: Rates) -> float:
        """The seconds that it takes at least: whichever of both takes longer."""
        return max(self.bytes / rates.bytes, self.operations / rates.operations)


@torch.inference_mode()
def rates(network: nn.Module, rows: int = 512) -> Rates:
    """Both, in the network's dtype on its device, the better of three tries each. Bytes: one row through many matrices,
    of 256 MiB together. Operations: `rows` rows through matrices of 1024 by 4096."""
    made = next(network.parameters()).new_full
    size = next(network.parameters()).element_size()
    matrices = [made((4 * WIDE, WIDE), 0.01) for _ in range(STREAMED // (4 * WIDE * WIDE * size))]
    row, many = made((1, WIDE), 0.01), made((rows, WIDE), 0.01)

    def stream() -> None:
        for matrix in matrices:
            out = linear(row, matrix)
        out[0, 0].item()  # wait for a device that runs ahead

    def multiply() -> None:
        for matrix in matrices[:8]:
            out = linear(many, matrix)
        out[0, 0].item()

    streamed, done = len(matrices) * 4 * WIDE * WIDE * size, 8 * 2 * rows * WIDE * 4 * WIDE
    return Rates(streamed / _best(stream), done / _best(multiply))


def _best(work: Callable[[], None]) -> float:
    work()
    return min(_seconds(work) for _ in range(3))


def _seconds(work: Callable[[], None]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def work(network: nn.Module, tokens: int, rows: int, context: int) -> Work:
    """What one forward of `tokens` new tokens in each of `rows` rows over `context` cached ones needs at least.

    Every weight of a layer is read once, the output matrix too, keys and values once; logits are made for one token a
    row. Norms and activations are left out: they are small.
    """
    config: Any = network.config
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    size = next(network.parameters()).element_size()
    output: nn.Module = network.get_output_embeddings()  # type: ignore[operator]
    head = sum(weight.numel() for weight in output.parameters())
    embedded = sum(weight.numel() for weight in network.get_input_embeddings().parameters())  # type: ignore[operator]
    shared = output.weight is network.get_input_embeddings().weight  # type: ignore[operator]
    inner = sum(weight.numel() for weight in network.parameters()) - embedded - (0 if shared else head)
    seen = tokens * context + tokens * (tokens + 1) / 2
    attention = 4 * rows * seen * heads * dim * config.num_hidden_layers
    cached = 2 * rows * (context + tokens) * groups * dim * config.num_hidden_layers
    return Work((inner + head + cached) * size, 2 * rows * (tokens * inner + head) + attention)
