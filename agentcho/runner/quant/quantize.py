"""A quantized matrix: integers, and the scales that multiply them.

In 8 bits each row has one scale. In 4 bits each group of `GROUP` numbers of a row has one. Independent of layers and
kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from agentcho.config import Bits

GROUP = 32
"""The group size in 4 bits. torch's products take as long with 64 or 128, the error is smallest with 32, and the widths
of all known model families are divisible by it."""
TOP = 127
"""The largest magnitude that is used in 8 bits."""
LOW, HIGH = -8, 7
"""The range of 4 bits."""


class QuantizedMatrix(NamedTuple):
    """`numbers` `[out, in]`, int8; `scale` `[out, groups]`, in the dtype of the matrix."""

    numbers: Tensor
    scale: Tensor

    def whole(self) -> Tensor:
        """The dequantized matrix `[out, in]`, in the dtype of the scales."""
        out, groups = self.scale.shape
        wide = self.numbers.to(self.scale.dtype).view(out, groups, -1)
        return (wide * self.scale.unsqueeze(2)).view(self.numbers.shape)


def can_quantize(width: int, bits: Bits) -> bool:
    """Whether rows of this width can be quantized to `bits`."""
    return bits == "int8" or width % GROUP == 0


def quantized_matrix(weight: Tensor, bits: Bits) -> QuantizedMatrix:
    """Quantize a matrix `[out, in]`. The largest number of each group is exact up to the rounding of its scale; in 4
    bits the scale has the precision of bfloat16, so that each number times its scale is exact in 16 bits."""
    groups = 1 if bits == "int8" else weight.shape[1] // GROUP
    wide = weight.detach().float().view(len(weight), groups, -1)
    if bits == "int8":
        scale = (wide.abs().amax(2) / TOP).to(weight.dtype)
    else:
        extreme = wide.gather(2, wide.abs().argmax(2, keepdim=True)).squeeze(2)
        scale = (extreme / LOW).bfloat16().to(weight.dtype)
    by = scale.float().unsqueeze(2)
    numbers = torch.where(by == 0, by, torch.round(wide / by))
    low, high = (-TOP, TOP) if bits == "int8" else (LOW, HIGH)
    return QuantizedMatrix(numbers.clamp(low, high).to(torch.int8).view(weight.shape), scale)


def pack_nibbles(numbers: Tensor) -> Tensor:
    """Pack 4-bit numbers `[out, in]`, int8, two to a byte: `[out, in / 2]`, uint8."""
    above = (numbers - LOW).to(torch.uint8)
    return above[:, 0::2] | above[:, 1::2] << 4


def unpack_nibbles(pairs: Tensor) -> Tensor:
    """Reverse `pack_nibbles`."""
    both = torch.stack((pairs & 15, pairs >> 4), dim=2)
    return both.view(len(pairs), -1).to(torch.int8) + LOW
