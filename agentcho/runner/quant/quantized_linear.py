"""Linear layers with quantized weights. The inputs of a layer are not rounded, so that rows of a batch do not influence
each other.

Inside `use_packed`, a layer uses a product of its own if there is one for the processor, for as many rows as it is
faster for; otherwise, and where gradients are kept, the weights are dequantized first. So the gate, which compares the
two, verifies that product. The head has at least 8 bits, because no later layer averages its errors out. Independent of
attention, of models, and of how a matrix is rounded.
"""

from __future__ import annotations

from typing import Any, cast, get_args

import torch
from torch import Tensor, nn

from agentcho.config import Bits
from agentcho.errors import ModelError
from agentcho.protocol.progress import ProgressCallback, counted, no_progress
from agentcho.runner.quant.int_matmul import (
    Making,
    Product,
    accepts_rows,
    fastest_matmul,
    fp16_matmul,
    int4_matmul,
    int8_matmul,
    row_limit,
)
from agentcho.runner.quant.prepack import in_use
from agentcho.runner.quant.quantize import (
    GROUP,
    QuantizedMatrix,
    can_quantize,
    pack_nibbles,
    quantized_matrix,
    unpack_nibbles,
)

SAID: dict[Making | None, str] = {
    int8_matmul: "by torch's product of 8 bits",
    int4_matmul: "by torch's product of 4 bits, over a second copy",
    fp16_matmul: "by FBGEMM, over a copy in 16 bits",
    None: "dequantized each time",
}
"""The description of how layers multiply, by the function that built their product."""


def check_bits(bits: str | None, merge: bool) -> None:
    """Raise `ModelError` for unknown names, and for an adapter that is to be merged into quantized weights."""
    if bits is None:
        return
    if bits not in get_args(Bits):
        known = ", ".join(get_args(Bits))
        raise ModelError(f"unknown weights {bits!r}; give {known}, or leave it out to use the model's own weights")
    if merge:
        raise ModelError(f"an adapter cannot be merged into weights in {bits}; leave out merge, or weights={bits}")


class QuantizedLinear(nn.Linear):
    """A linear layer whose weight is quantized: `weight` `[out, in]`, int8, or `[out, in / 2]`, uint8, two numbers to a
    byte. The weight has no gradient; the layer's input has."""

    scale: Tensor
    making: Making | None
    _product: Product | None
    _few: int | None

    @classmethod
    def make(cls, layer: Any, bits: Bits, making: Making | None) -> None:
        """Quantize a linear layer in place, with the function that builds its product, if any; its own weight is
        dropped."""
        matrix = quantized_matrix(layer.weight, bits)
        layer.__class__ = cls
        kept = matrix.numbers if bits == "int8" else pack_nibbles(matrix.numbers)
        layer.weight = nn.Parameter(kept, requires_grad=False)
        layer.register_buffer("scale", matrix.scale)
        layer.making = making if making is not None and accepts_rows(making, layer.out_features) else None
        layer._product = None if layer.making is None else layer.making(matrix)
        layer._few = None if layer.making is None else row_limit(layer.making)

    def whole(self) -> Tensor:
        """Its dequantized weight `[out, in]`."""
        numbers = self.weight if self.weight.dtype == torch.int8 else unpack_nibbles(self.weight)
        return QuantizedMatrix(numbers, self.scale).whole()

    def forward(self, input: Tensor) -> Tensor:
        """See `torch.nn.Linear`."""
        if not input.numel():  # no logits are wanted
            return input.new_empty(*input.shape[:-1], self.out_features)
        if not self._packs(input):
            return nn.functional.linear(input, self.whole(), self.bias)
        assert self._product is not None
        product = self._product(input.reshape(-1, self.in_features)).view(*input.shape[:-1], self.out_features)
        return product if self.bias is None else product + self.bias

    def _packs(self, input: Tensor) -> bool:
        """Whether its own product is to be used."""
        if self._product is None or not in_use() or input.dtype != self.scale.dtype:
            return False
        if torch.is_grad_enabled() and input.requires_grad:
            return False
        return self._few is None or input.numel() <= self._few * self.in_features


def quantize_linears(network: nn.Module, bits: str, name: str, tell: ProgressCallback = no_progress) -> int:
    """Quantize the linear layers of a network, except those whose width is not a whole number of groups, and its head
    to 8 bits; return the number of quantized layers. Embeddings stay unquantized, even if the head shared them. Raises
    `ModelError` if no layer can be quantized."""
    asked = cast(Bits, bits)
    layers = [each for each in _linear(network) if can_quantize(each.in_features, asked)]
    if not layers:
        raise ModelError(f"{name} has no linear layers that can be quantized to {bits}; leave out weights={bits}")
    every: list[tuple[nn.Linear, Bits]] = [(layer, asked) for layer in layers]
    if isinstance(head := _head(network), nn.Linear):
        every.append((head, "int8"))
    kinds = {(each.weight.dtype, each.weight.device, kept) for each, kept in every}
    making = {(dtype, device, kept): fastest_matmul(kept, dtype, device) for dtype, device, kept in kinds}
    done = counted(tell, "matrices in few bits", len(every))
    for number, (layer, kept) in enumerate(every, 1):
        QuantizedLinear.make(layer, kept, making[layer.weight.dtype, layer.weight.device, kept])
        done(number)
    return len(every)


def _head(network: nn.Module) -> object:
    return network.get_output_embeddings()  # type: ignore[operator]


def _linear(network: nn.Module) -> list[nn.Linear]:
    """The linear layers of a network, except its head."""
    head = _head(network)
    return [each for each in network.modules() if isinstance(each, nn.Linear) and each is not head]


def quantization_summary(network: nn.Module) -> str:
    """A description of the quantized layers, their size and how they multiply; empty if there are none."""
    layers = _linear(network)
    found = [each for each in layers if isinstance(each, QuantizedLinear)]
    if not found:
        return ""
    size = sum(each.weight.nbytes + each.scale.nbytes for each in found)
    scaled = "row" if found[0].scale.shape[1] == 1 else f"{GROUP} numbers"
    ways = [each.making for each in found]
    said = [f"{ways.count(way)} {SAID[way]}" for way in dict.fromkeys(ways)]
    left = len(layers) - len(found)
    whole = f"; {left} left whole, with a width that is no multiple of {GROUP}" if left else ""
    kept = f"{len(found)} layers in {size / 1e6:.1f} MB, a scale for each {scaled}"
    head = (
        "the head in 8 bits, embeddings whole"
        if isinstance(_head(network), QuantizedLinear)
        else "embeddings and head whole"
    )
    return f"{kept}; {', '.join(said)}{whole}; {head}"
