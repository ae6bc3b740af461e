"""Which keys of rows were encoded beside each other, as tensors of one forward.

Does not know: how they are weighed, which contexts there are.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from agentcho.engine.layout import Parallel
from agentcho.reuse.ape import Ape
from agentcho.runner.attention.base import Tempered


def tempered(rows: Iterable[tuple[int, Parallel | None]], count: int, width: int, device: torch.device) -> Tempered:
    """Of `count` rows with `width` keys each those keys that are not weighed as they are; `rows` by their index."""
    marks = torch.zeros(count, 1, 1, width, dtype=torch.bool)
    temperature, scale = torch.ones(2, count, 1, 1, 1)
    for row, parallel in rows:
        if parallel is None:
            continue
        assert isinstance(parallel.ape, Ape)
        temperature[row], scale[row] = parallel.ape.temperature, parallel.ape.scale
        for start, stop in parallel.spans:
            marks[row, :, :, start:stop] = True
    return Tempered(marks.to(device), temperature.to(device), scale.to(device))
