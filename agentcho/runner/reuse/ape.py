"""APE (arXiv 2502.05431): marks the keys of rows that were encoded in parallel, as tensors of one forward, and weighs
them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from agentcho.engine.call_layout import ParallelContext
from agentcho.reuse.ape import Ape


class TemperedKeys(NamedTuple):
    """Keys of rows that were encoded in parallel, `marks` `[rows, 1, 1, length]` bool, and their weighting `[rows, 1,
    1, 1]`: see `Ape`."""

    marks: Tensor
    temperature: Tensor
    scale: Tensor

    def weigh(self, scores: Tensor) -> Tensor:
        """Scores `[rows, heads, n, length]` float32, minus infinity where nothing is seen, so that the softmax over all
        keys gives the weights."""
        scores = torch.where(self.marks, scores / self.temperature, scores)
        total = scores.masked_fill(~self.marks, float("-inf")).logsumexp(-1, keepdim=True)
        more = ((self.scale - 1) * total).masked_fill(total.isneginf(), 0.0)
        return torch.where(self.marks, scores + more, scores)


def tempered_keys(
    rows: Iterable[tuple[int, ParallelContext]], count: int, width: int, device: torch.device
) -> TemperedKeys:
    """The keys of `count` rows with `width` keys each that APE weighs; `rows` has a row's index and its parallel
    context."""
    marks = torch.zeros(count, 1, 1, width, dtype=torch.bool)
    temperature, scale = torch.ones(2, count, 1, 1, 1)
    for row, parallel in rows:
        assert isinstance(parallel.ape, Ape)
        temperature[row], scale[row] = parallel.ape.temperature, parallel.ape.scale
        for start, stop in parallel.spans:
            marks[row, :, :, start:stop] = True
    return TemperedKeys(marks.to(device), temperature.to(device), scale.to(device))
