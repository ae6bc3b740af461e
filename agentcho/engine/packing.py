"""Weights of linear layers a second time, in the order in which the processor's kernels read them.

On a CPU torch puts weights into that order anew for every product, which with few rows takes longer than the product
itself. Used where `packed` is entered; everywhere else, and for who looks at its weights, a layer is as it was.
Does not know: attention, models.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from agentcho.engine.placement import memory_of

LEAST = 64 << 20
"""Bytes below which all weights may stay in the processor's caches, and nothing is gained."""
SHARE = 1 / 4
"""Of the machine's memory: what a second copy may take."""
KINDS = (torch.float32, torch.bfloat16)


class _Use(threading.local):
    on = False


_use = _Use()


@contextmanager
def packed() -> Iterator[None]:
    """Go through packed weights in this thread, where there are any. No gradients."""
    _use.on = True
    try:
        yield
    finally:
        _use.on = False


class Packed(nn.Linear):
    """A linear layer with a second copy of its weight. The base's weights are not changed while it is there."""

    _copy: Tensor

    @classmethod
    def make(cls, layer: Any) -> None:
        """Make one of a linear layer."""
        layer.__class__ = cls
        layer._copy = _kernels()._reorder_linear_weight(layer.weight.detach())

    def forward(self, input: Tensor) -> Tensor:
        """As of any linear layer."""
        if _use.on:
            product: Tensor = _kernels()._linear_pointwise(input, self._copy, self.bias, "none", [], "")
            return product
        return super().forward(input)


def pack(network: nn.Module, least: int | None = None) -> int:
    """Pack the linear layers of a network on a CPU, where that pays (from `least` bytes on, by default `LEAST`) and
    there is memory for it; returns the bytes that this takes."""
    least = LEAST if least is None else least
    layers = [each for each in network.modules() if type(each) is nn.Linear and _suits(each.weight)]
    size = sum(layer.weight.nbytes for layer in layers)
    if not layers or not least <= size <= SHARE * memory_of(torch.device("cpu")):
        return 0
    for layer in layers:
        Packed.make(layer)
    return size


def _suits(weight: Tensor) -> bool:
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return there and weight.device.type == "cpu" and weight.dtype in KINDS


def _kernels() -> Any:
    return torch.ops.mkldnn
