"""Memory that every layer of a forward writes over: the first to write fresh memory pays as much again for its pages.

Does not know: what it is for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


class Scratch:
    """One block of each name, device and type, as long as the longest that was taken."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, torch.device, torch.dtype], Tensor] = {}

    def take(self, name: str, shape: Sequence[int], device: torch.device, dtype: torch.dtype) -> Tensor:
        """An uninitialised, contiguous tensor, good until the next of its name is taken."""
        size, kind = math.prod(shape), (name, device, dtype)
        if kind not in self._blocks or len(self._blocks[kind]) < size:
            self._blocks[kind] = torch.empty(size, device=device, dtype=dtype)
        return self._blocks[kind][:size].view(*shape)
