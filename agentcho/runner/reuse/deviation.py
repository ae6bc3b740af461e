"""Finds the tokens whose values differ most from kept values, as in CacheBlend (arXiv 2405.16444).

Independent of calls, of storage, and of how many tokens are chosen.
"""

from __future__ import annotations

import torch
from torch import Tensor

COMPARED = 1
"""The first layer whose values are compared: those of the layer before do not depend on the context."""


def most_deviating(fresh: Tensor, kept: Tensor, count: int) -> tuple[int, ...]:
    """The `count` tokens whose values `[heads, tokens, dim]` differ most from the kept ones, in ascending order. Equal
    tensors give equal choices."""
    deviation = (fresh.float() - kept.float()).square().sum(dim=(0, 2))
    order = torch.argsort(deviation, descending=True, stable=True)
    return tuple(sorted(order[:count].tolist()))
