"""Keys and values in 8 bits: each token of each head is rounded by itself, so that nothing that stands beside it
changes it.

What is kept of a vector is its largest magnitude, and each number as so many 127ths of that. The largest number comes
back as it was, and the others as the nearest of 255. So what was rounded once is rounded to the same bits again: who
speaks attends to the very numbers that others read later. Does not know: pages, slots, positions.
"""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from agentcho.config import KvDtype
from agentcho.errors import ModelError

TOP = 127
"""The largest of 8 bits that is used, on both sides of zero."""


def check_kv_dtype(name: str | None) -> None:
    """`ModelError`: there is no such form of keys and values."""
    if name is not None and name not in get_args(KvDtype):
        known = ", ".join(get_args(KvDtype))
        raise ModelError(f"unknown kv_dtype {name!r}; give {known}, or leave it out to use the model's dtype")


def quantized_width(dim: int, dtype: torch.dtype) -> int:
    """Bytes of one vector of `dim` numbers of this dtype: one each, and those of the largest magnitude."""
    return dim + dtype.itemsize


def quantize_vectors(vectors: Tensor) -> Tensor:
    """Vectors `[..., dim]` as bytes `[..., width]`, int8. One with a number that is infinite, or none, comes back
    without numbers; one whose numbers are all as small as the smallest normal one, or smaller, as zeros."""
    largest, numbers = _rounded(vectors)
    return torch.cat([numbers.to(torch.int8), largest.view(torch.int8)], -1)


def dequantize_vectors(kept: Tensor, out: Tensor) -> Tensor:
    """Write the vectors `[..., dim]` behind bytes `[..., width]` into `out`, which is returned."""
    dim = out.shape[-1]
    largest = kept[..., dim:].contiguous().view(out.dtype)
    return out.copy_(_multiplied(kept[..., :dim].float(), largest))


def round_trip(vectors: Tensor) -> Tensor:
    """What `dequantize_vectors` gives of `quantize_vectors` vectors."""
    largest, numbers = _rounded(vectors)
    return _multiplied(numbers, largest).to(vectors.dtype)


def _rounded(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The largest magnitudes `[..., 1]`, in the dtype of the vectors, and whole numbers `[..., dim]` of 127ths of them,
    float32: all 0 where the largest is 0, infinite or no number, which times 0 is none."""
    smallest = torch.finfo(vectors.dtype).smallest_normal
    largest = torch.threshold(vectors.abs().amax(-1, keepdim=True), smallest, 0)
    numbers = torch.div(vectors.float(), largest.float()).mul_(TOP).round_()
    return largest, numbers.nan_to_num_(nan=0, posinf=0, neginf=0)


def _multiplied(numbers: Tensor, largest: Tensor) -> Tensor:
    """Whole numbers of 127ths, float32, times the largest magnitudes. `numbers` is written over. (127 times the 127th
    part of 1 is exactly 1 in float32, so that the largest number comes back as it was.)"""
    return numbers.mul_(1 / TOP).mul_(largest.float())
