"""Which tokens have values that differ most from values that are kept, as in CacheBlend (arXiv 2405.16444).

Does not know: calls, where keys and values lie, how many tokens are chosen.
"""

from __future__ import annotations

import torch
from torch import Tensor

COMPARED = 1
"""The first layer whose values are compared: those of the layer before depend on no context."""


def most_deviating(fresh: Tensor, kept: Tensor, count: int) -> tuple[int, ...]:
    """The `count` tokens whose values `[heads, tokens, dim]` differ most from the kept ones, in order. Equal tensors
    give equal choices."""
    deviation = (fresh.float() - kept.float()).square().sum(dim=(0, 2))
    order = torch.argsort(deviation, descending=True, stable=True)
    return tuple(sorted(order[:count].tolist()))
