"""How far the input embeddings of tokens are apart. Does not know: messages, methods."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


@torch.inference_mode()
def distances(table: Tensor, tokens: Sequence[int], others: Sequence[Sequence[int]]) -> list[float]:
    """The L2 norm between the rows of a table of embeddings `[vocab, dim]` for these tokens, and for as many first ones
    of each other; each in float64, by itself, so that no other changes its bits."""
    own = _rows(table, tokens)
    return [float((own - _rows(table, other[: len(tokens)])).square().sum().sqrt()) for other in others]


def _rows(table: Tensor, tokens: Sequence[int]) -> Tensor:
    return table[torch.tensor(tokens, device=table.device)].double()
