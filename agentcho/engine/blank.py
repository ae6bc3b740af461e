"""Memory that is all zeros, and on a CPU costs nothing until it is written.

The system hands out its pages when they are first written, so that a tensor may be as long as it can ever become. Does
not know: what it is for.
"""

from __future__ import annotations

import math

import numpy
import torch
from torch import Tensor


def zeros(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """A tensor of zeros. `torch.zeros` writes all of it, which takes longer than a step for a long context's keys."""
    if device.type != "cpu":
        return torch.zeros(shape, device=device, dtype=dtype)
    raw = numpy.zeros(math.prod(shape) * dtype.itemsize, dtype=numpy.uint8)
    return torch.from_numpy(raw).view(dtype).view(shape)
