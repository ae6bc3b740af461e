"""Keys and values in 8 bits. Each head of each token is rounded by itself, so that its neighbours cannot change it.

A vector is stored as its largest magnitude, and each number as a multiple of a 127th of that. The largest number is
restored exactly, and the others as the nearest of 255 values. So rounding again gives the same bits: a speaker attends
to the very numbers that others read later. Independent of pages, slots and positions.
"""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from agentcho.config import KvDtype
from agentcho.errors import ModelError

TOP = 127
"""The largest magnitude that is used in 8 bits."""


def check_kv_dtype(name: str | None) -> None:
    """Raise `ModelError` if there is no such format of keys and values."""
    if name is not None and name not in get_args(KvDtype):
        known = ", ".join(get_args(KvDtype))
        raise ModelError(f"unknown kv_dtype {name!r}; give {known}, or leave it out to use the model's dtype")


def quantized_width(dim: int, dtype: torch.dtype) -> int:
    """The size in bytes of one vector of `dim` numbers: one byte each, and the largest magnitude in this dtype."""
    return dim + dtype.itemsize


def quantize_vectors(vectors: Tensor) -> Tensor:
    """Vectors `[..., dim]` as bytes `[..., width]`, int8. A vector with an infinite number or NaN is read back as NaN;
    one whose numbers are all at most the smallest normal number is read back as zeros."""
    largest, numbers = _rounded(vectors)
    return torch.cat([numbers.to(torch.int8), largest.view(torch.int8)], -1)


def dequantize_vectors(kept: Tensor, out: Tensor) -> Tensor:
    """Write the vectors `[..., dim]` stored in bytes `[..., width]` into `out`, and return it."""
    dim = out.shape[-1]
    largest = kept[..., dim:].contiguous().view(out.dtype)
    return out.copy_(_multiplied(kept[..., :dim].float(), largest))


def round_trip(vectors: Tensor) -> Tensor:
    """The result of `dequantize_vectors` for `quantize_vectors` of these vectors."""
    largest, numbers = _rounded(vectors)
    return _multiplied(numbers, largest).to(vectors.dtype)


def _rounded(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The largest magnitudes `[..., 1]`, in the dtype of the vectors, and the numbers `[..., dim]` as multiples of a
    127th of them, float32: all 0 where the largest is 0, infinite or NaN; infinity or NaN times 0 is NaN."""
    smallest = torch.finfo(vectors.dtype).smallest_normal
    largest = torch.threshold(vectors.abs().amax(-1, keepdim=True), smallest, 0)
    numbers = torch.div(vectors.float(), largest.float()).mul_(TOP).round_()
    return largest, numbers.nan_to_num_(nan=0, posinf=0, neginf=0)


def _multiplied(numbers: Tensor, largest: Tensor) -> Tensor:
    """Multiples of a 127th, float32, times the largest magnitudes. Overwrites `numbers`. (127 times the float32 value
    of 1/127 is exactly 1, so the largest number is restored exactly.)"""
    return numbers.mul_(1 / TOP).mul_(largest.float())
