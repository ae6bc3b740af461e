"""Linear layers with weights in few bits. What a layer is given is not rounded, so that rows of a batch do not
influence each other.

Inside `packed` a product of its own is used, where there is one for the processor; everywhere else, and where gradients
are kept, the weights are multiplied out first. So the gate, which compares the two, proves that product. Does not know:
attention, models, how a matrix is rounded.
"""

from __future__ import annotations

from typing import Any, cast, get_args

import torch
from torch import Tensor, nn

from agentcho.config import Bits
from agentcho.errors import ModelError
from agentcho.progress import Tell, counted, unheard
from agentcho.runner.prepack import in_use
from agentcho.runner.products import Making, Product, of_bytes, of_halves, of_nibbles, quickest, takes
from agentcho.runner.rounding import GROUP, Rounded, fits, paired, rounded, unpaired

SAID: dict[Making | None, str] = {
    of_bytes: "by torch's product of 8 bits",
    of_nibbles: "by torch's product of 4 bits, over a second copy",
    of_halves: "by FBGEMM, over a copy in 16 bits",
    None: "multiplied out each time",
}
"""How layers multiply, by what made their product."""


def check_bits(bits: str | None, merge: bool) -> None:
    """Refuse unknown names, and an adapter that is to be added to weights in few bits. `ModelError`."""
    if bits is None:
        return
    if bits not in get_args(Bits):
        known = ", ".join(get_args(Bits))
        raise ModelError(f"unknown weights {bits!r}; give {known}, or leave it out for those of the model")
    if merge:
        raise ModelError(f"an adapter cannot be merged into weights in {bits}; leave out merge, or weights={bits}")


class Lighter(nn.Linear):
    """A linear layer whose weight is in few bits: `weight` `[out, in]`, int8, or `[out, in / 2]`, uint8, two numbers in
    a byte. It has no gradient; what goes through it has."""

    scale: Tensor
    making: Making | None
    _product: Product | None

    @classmethod
    def make(cls, layer: Any, bits: Bits, making: Making | None) -> None:
        """From a linear layer, and what makes its product, if anything; its own weight is given up."""
        matrix = rounded(layer.weight, bits)
        layer.__class__ = cls
        kept = matrix.numbers if bits == "int8" else paired(matrix.numbers)
        layer.weight = nn.Parameter(kept, requires_grad=False)
        layer.register_buffer("scale", matrix.scale)
        layer.making = making if making is not None and takes(making, layer.out_features) else None
        layer._product = None if layer.making is None else layer.making(matrix)

    def whole(self) -> Tensor:
        """Its weight `[out, in]`, multiplied out."""
        numbers = self.weight if self.weight.dtype == torch.int8 else unpaired(self.weight)
        return Rounded(numbers, self.scale).whole()

    def forward(self, input: Tensor) -> Tensor:
        """See `torch.nn.Linear`."""
        kept = torch.is_grad_enabled() and input.requires_grad
        if self._product is None or kept or not in_use() or input.dtype != self.scale.dtype:
            return nn.functional.linear(input, self.whole(), self.bias)
        product = self._product(input.reshape(-1, self.in_features)).view(*input.shape[:-1], -1)
        return product if self.bias is None else product + self.bias


def lighten(network: nn.Module, bits: str, name: str, tell: Tell = unheard) -> int:
    """Bring the linear layers of a network into few bits, its head aside, and those whose width has no whole number of
    groups; returns how many. `ModelError`: there is none."""
    few = cast(Bits, bits)
    layers = [each for each in _linear(network) if fits(each.in_features, few)]
    if not layers:
        raise ModelError(f"{name} has no linear layers that could be in {bits}; leave out weights={bits}")
    kinds = {(each.weight.dtype, each.weight.device) for each in layers}
    making = {kind: quickest(few, *kind) for kind in kinds}
    done = counted(tell, "matrices in few bits", len(layers))
    for number, layer in enumerate(layers, 1):
        Lighter.make(layer, few, making[layer.weight.dtype, layer.weight.device])
        done(number)
    return len(layers)


def _linear(network: nn.Module) -> list[nn.Linear]:
    """The linear layers of a network, its head aside."""
    head = network.get_output_embeddings()  # type: ignore[operator]
    return [each for each in network.modules() if isinstance(each, nn.Linear) and each is not head]


def lightened(network: nn.Module) -> str:
    """How many layers are in few bits, what they take and how they multiply, in words; empty: none is."""
    layers = _linear(network)
    found = [each for each in layers if isinstance(each, Lighter)]
    if not found:
        return ""
    size = sum(each.weight.nbytes + each.scale.nbytes for each in found)
    scaled = "row" if found[0].scale.shape[1] == 1 else f"{GROUP} numbers"
    ways = [each.making for each in found]
    said = [f"{ways.count(way)} {SAID[way]}" for way in dict.fromkeys(ways)]
    left = len(layers) - len(found)
    whole = f"; {left} left whole, with a width that is no multiple of {GROUP}" if left else ""
    kept = f"{len(found)} layers in {size / 1e6:.1f} MB, a scale for each {scaled}"
    return f"{kept}; {', '.join(said)}{whole}; embeddings and head are whole"
