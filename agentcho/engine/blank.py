"""Memory that is all zeros, and on a CPU, where there is much of it, costs nothing until it is written.

The system hands out its pages when they are first written, so that a tensor may be as long as it can ever become. Does
not know: what it is for.
"""

from __future__ import annotations

import math
import sys

import numpy
import torch
from torch import Tensor

ALIGNED = 64
"""Bytes that torch's own tensors begin at a multiple of; kernels may compute in another order where one does not."""


def zeros(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """A tensor of zeros. `torch.zeros` writes all of it, which takes longer than a step for a long context's keys.
    `MemoryError`: the system does not promise so much."""
    if device.type != "cpu":
        return torch.zeros(shape, device=device, dtype=dtype)
    size = math.prod(shape) * dtype.itemsize
    if size > sys.maxsize - ALIGNED:
        raise MemoryError
    raw = numpy.zeros(size + ALIGNED, dtype=numpy.uint8)
    start = -raw.ctypes.data % ALIGNED
    return torch.from_numpy(raw[start : start + size]).view(dtype).view(shape)
