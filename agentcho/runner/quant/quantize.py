"""A matrix in few bits: whole numbers, and the scales by which they are multiplied again.

In 8 bits a row has one scale. In 4 bits each `GROUP` numbers of a row have one. Does not know: layers, kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from agentcho.config import Bits

GROUP = 32
"""Numbers with one scale, in 4 bits. torch's products take as long with 64 or 128, the error is least with 32, and the
widths of all known families can be divided by it."""
TOP = 127
"""The largest of 8 bits that is used, on both sides of zero."""
LOW, HIGH = -8, 7
"""The range of 4 bits."""


class QuantizedMatrix(NamedTuple):
    """`numbers` `[out, in]`, int8; `scale` `[out, groups]`, in the dtype of the matrix."""

    numbers: Tensor
    scale: Tensor

    def whole(self) -> Tensor:
        """The matrix `[out, in]`, multiplied out, in the dtype of the scales."""
        out, groups = self.scale.shape
        wide = self.numbers.to(self.scale.dtype).view(out, groups, -1)
        return (wide * self.scale.unsqueeze(2)).view(self.numbers.shape)


def can_quantize(width: int, bits: Bits) -> bool:
    """Whether rows of this width can be in so many bits."""
    return bits == "int8" or width % GROUP == 0


def quantized_matrix(weight: Tensor, bits: Bits) -> QuantizedMatrix:
    """A matrix `[out, in]` in few bits. The largest number of each group is kept as it is, but for its scale; in 4 bits
    that has the digits of bfloat16, so that each number times its scale is exact in 16 bits."""
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
    """Numbers of 4 bits `[out, in]`, int8, two in a byte: `[out, in / 2]`, uint8."""
    above = (numbers - LOW).to(torch.uint8)
    return above[:, 0::2] | above[:, 1::2] << 4


def unpack_nibbles(pairs: Tensor) -> Tensor:
    """What `pack_nibbles` was given."""
    both = torch.stack((pairs & 15, pairs >> 4), dim=2)
    return both.view(len(pairs), -1).to(torch.int8) + LOW
