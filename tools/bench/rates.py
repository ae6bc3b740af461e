"""Measures the rates of this machine: bytes per second of weights streamed through a matrix product, and operations per
second of a large product. Also computes the bytes and operations that a model's steps need.

Independent of engines.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from agentcho.runner.model.device import synchronize
from agentcho.runner.quant.prepack import pack_linears, use_packed

STREAMED = 256 * 2**20
"""Bytes of weights that are streamed: far more than any cache holds."""
WIDE = 1024
"""Columns, and a quarter of the rows, of the matrices."""


class Rates(NamedTuple):
    """Bytes per second, and operations per second (a multiplication and an addition are two)."""

    bytes: float
    operations: float


class Work(NamedTuple):
    """The work of a forward: bytes of weights, keys and values read, and operations."""

    bytes: float
    operations: float

    def least(self, rates: Rates) -> float:
        """The minimum seconds that the work can take: the longer of its two parts."""
        return max(self.bytes / rates.bytes, self.operations / rates.operations)


@torch.inference_mode()
def rates(network: nn.Module, rows: int = 512, size: int | None = None) -> Rates:
    """Measure both rates, in the network's dtype on its device, as the best of three tries each. Bytes: one row through
    many matrices of `size` bytes in all (default: 256 MiB). Operations: `rows` rows through matrices of 1024 by 4096.
    On a CPU the matrices are packed, as a network's are. On a GPU, where launches would take as long as the
    computation: eight times the bytes, larger matrices and more repetitions, and a copy if that is faster."""
    first = next(network.parameters())
    wide, times = (8 * WIDE, 4) if first.device.type == "cuda" else (WIDE, 1)
    count = max(2, (size or STREAMED) * wide // WIDE // (4 * wide * wide * first.element_size()))
    matrices = [_matrix(first, wide) for _ in range(count)]
    pack_linears(nn.ModuleList(matrices))
    row, many = first.new_full((1, wide), 0.01), first.new_full((rows, wide), 0.01)

    def stream() -> None:
        for matrix in times * matrices:
            matrix(row)

    def multiply() -> None:
        for matrix in times * matrices[:8]:
            matrix(many)

    def copy() -> None:
        for _ in range(times):
            matrices[0].weight.copy_(matrices[1].weight)

    read = sum(matrix.weight.nbytes for matrix in matrices)
    bytes = times * read / _best(stream, first.device)
    if first.device.type == "cuda":  # a copy reads and writes each byte
        bytes = max(bytes, 2 * times * matrices[0].weight.nbytes / _best(copy, first.device))
    done = times * len(matrices[:8]) * 2 * rows * matrices[0].weight.numel()
    return Rates(bytes, done / _best(multiply, first.device))


def _best(work: Callable[[], None], device: torch.device) -> float:
    with use_packed(brief=True):
        work()
        return min(_seconds(work, device) for _ in range(3))


def _matrix(like: Tensor, wide: int) -> nn.Linear:
    layer = nn.Linear(wide, 4 * wide, bias=False, device=like.device, dtype=like.dtype)
    layer.weight.fill_(0.01)
    return layer


def _seconds(work: Callable[[], None], device: torch.device) -> float:
    synchronize(device)
    began = perf_counter()
    work()
    synchronize(device)
    return perf_counter() - began


def streamed(network: nn.Module) -> int:
    """Bytes of the weights that a decode step reads: all except an input embedding that is not also the output
    matrix."""
    inner, head = _weights(network)
    return (inner + head) * next(network.parameters()).element_size()


def _weights(network: Any) -> tuple[int, int]:
    """The number of weights in the layers, and in the output matrix."""
    inputs, outputs = network.get_input_embeddings(), network.get_output_embeddings()
    head = sum(weight.numel() for weight in outputs.parameters())
    embedded = sum(weight.numel() for weight in inputs.parameters())
    aside = embedded if outputs.weight is inputs.weight else embedded + head
    return sum(weight.numel() for weight in network.parameters()) - aside, head


def work(network: nn.Module, tokens: int, rows: int, context: int, apart: bool = True) -> Work:
    """The minimum work of one forward of `tokens` new tokens in each of `rows` rows over `context` cached tokens, which
    are each row's own (`apart`) or shared.

    Every weight of a layer is read once, and so are the output matrix, keys and values. Logits are computed for one
    token per row. Norms and activations are left out because they are small.
    """
    config: Any = network.config
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    inner, head = _weights(network)
    seen = tokens * context + tokens * (tokens + 1) / 2
    attention = 4 * rows * seen * heads * dim * config.num_hidden_layers
    cached = 2 * ((rows if apart else 1) * context + rows * tokens) * groups * dim * config.num_hidden_layers
    size = next(network.parameters()).element_size()
    return Work(streamed(network) + cached * size, 2 * rows * (tokens * inner + head) + attention)
