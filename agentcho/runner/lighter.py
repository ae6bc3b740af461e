"""Weights of linear layers in 8 bits, with a scale for each row of a matrix. What a layer is given is not rounded, so
that rows of a batch do not influence each other.

Inside `packed` torch's own product of 8-bit weights is used, where it is quicker; everywhere else, and where gradients
are kept, the weights are multiplied out first. So the gate, which compares the two, proves that product. Does not know:
attention, models.
"""

from __future__ import annotations

from typing import Any, get_args

import torch
from torch import Tensor, nn

from agentcho.config import Bits
from agentcho.errors import ModelError
from agentcho.progress import Tell, counted, unheard
from agentcho.runner.prepack import in_use

TOP = 127
"""The largest of 8 bits that is used, on both sides of zero."""


def check_bits(bits: str | None, merge: bool) -> None:
    """Refuse unknown names, and an adapter that is to be added to weights in few bits. `ModelError`."""
    if bits is None:
        return
    if bits not in get_args(Bits):
        known = ", ".join(get_args(Bits))
        raise ModelError(f"unknown weights {bits!r}; give {known}, or leave it out for those of the model")
    if merge:
        raise ModelError(f"an adapter cannot be merged into weights in {bits}; leave out merge, or weights={bits}")


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix `[out, in]` as int8, and the scales `[out]`, in its dtype, by which its rows are multiplied again."""
    wide = weight.detach().float()
    scale = (wide.abs().amax(1) / TOP).to(weight.dtype)
    rounded = torch.round(wide / scale.float().clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(1))
    return rounded.clamp(-TOP, TOP).to(torch.int8), scale


class Lighter(nn.Linear):
    """A linear layer whose weight is in 8 bits. It has no gradient; what goes through it has."""

    scale: Tensor

    @classmethod
    def make(cls, layer: Any) -> None:
        """From a linear layer; its own weight is given up."""
        rounded, scale = quantised(layer.weight)
        layer.__class__ = cls
        layer.weight = nn.Parameter(rounded, requires_grad=False)
        layer.register_buffer("scale", scale)

    def forward(self, input: Tensor) -> Tensor:
        """See `torch.nn.Linear`."""
        if not (in_use() and self._quick(input)):
            whole = self.weight.to(self.scale.dtype) * self.scale.unsqueeze(1)
            return nn.functional.linear(input, whole, self.bias)
        rows = input.reshape(-1, self.in_features)
        product = torch._weight_int8pack_mm(rows, self.weight, self.scale).view(*input.shape[:-1], -1)
        return product if self.bias is None else product + self.bias

    def _quick(self, input: Tensor) -> bool:
        """Whether torch's product is the quicker one: in bfloat16 on a CPU. In float32 it takes ten times as long."""
        kept = torch.is_grad_enabled() and input.requires_grad
        return input.device.type == "cpu" and input.dtype == self.scale.dtype == torch.bfloat16 and not kept


def lighten(network: nn.Module, bits: str, name: str, tell: Tell = unheard) -> int:
    """Bring the linear layers of a network into few bits, its head aside; returns how many. `ModelError`: it has
    none."""
    head = network.get_output_embeddings()  # type: ignore[operator]
    layers = [each for each in network.modules() if type(each) is nn.Linear and each is not head]
    if not layers:
        raise ModelError(f"{name} has no linear layers that could be in {bits}; leave out weights={bits}")
    done = counted(tell, "matrices in few bits", len(layers))
    for number, layer in enumerate(layers, 1):
        Lighter.make(layer)
        done(number)
    return len(layers)


def lightened(network: nn.Module) -> str:
    """How many layers are in few bits and what they take, in words; empty: none is."""
    found = [each for each in network.modules() if isinstance(each, Lighter)]
    if not found:
        return ""
    size = sum(each.weight.nbytes + each.scale.nbytes for each in found)
    return f"{len(found)} layers, {size / 1e6:.1f} MB, a scale for each row; embeddings and head are whole"
