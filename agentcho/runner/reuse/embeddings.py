"""Distances between the input embeddings of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


@torch.inference_mode()
def distances(table: Tensor, tokens: Sequence[int], others: Sequence[Sequence[int]]) -> list[float]:
    """The L2 norms between the rows of a table of embeddings `[vocab, dim]` for these tokens, and for as many first
    tokens of each other sequence; each computed in float64, separately, so that no other sequence changes its bits."""
    own = _rows(table, tokens)
    return [float((own - _rows(table, other[: len(tokens)])).square().sum().sqrt()) for other in others]


def _rows(table: Tensor, tokens: Sequence[int]) -> Tensor:
    return table[torch.tensor(tokens, device=table.device)].double()
