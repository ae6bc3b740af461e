"""Tables of what rows read where it is stored: for each token its row in the pools of pages, the shift of its key, and
its position.

The tensors stay in place, so that a captured forward can serve other rows. The caller keeps the pages from being
overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from agentcho.engine.call_layout import ContextPiece


class Columns(NamedTuple):
    """For each row `[3, width]`, int32: rows in the pools, shifts, positions. Only the first `counts` entries are
    read."""

    table: Tensor
    counts: Tensor


class Tables:
    """The tables of several rows, each for at most `width` tokens."""

    def __init__(self, width: int, device: torch.device, rows: int = 1) -> None:
        self.width = width
        self.columns = _empty(rows, width, device)

    def write(self, row: int, pieces: Sequence[ContextPiece]) -> None:
        """Set the pieces that a row reads, which read nothing before. The pieces must have their pages."""
        if not pieces:
            return
        device = self.columns.table.device
        lengths = torch.tensor([piece.entry.length for piece in pieces])
        shifts = torch.tensor([piece.shift for piece in pieces]).repeat_interleave(lengths)
        places = torch.cat([torch.arange(p.offset, p.offset + p.entry.length) for p in pieces])
        rows: list[Tensor] = [piece.entry.block.on(device) for piece in pieces]
        count = len(places)
        self.columns.table[row, 0, :count] = torch.cat(rows)
        self.columns.table[row, 1:, :count] = torch.stack([shifts, places]).to(device, torch.int32)
        self.columns.counts[row] = count

    def clear(self, row: int) -> None:
        """Let a row read nothing."""
        self.columns.counts[row] = 0

    def widen(self, rows: int) -> None:
        """Grow to `rows` rows, keeping the content."""
        old, self.columns = self.columns, _empty(rows, self.width, self.columns.table.device)
        for new, each in zip(self.columns, old, strict=True):
            new[: len(each)] = each

    def broaden(self, width: int) -> None:
        """Grow to at least `width` tokens per row, keeping the content."""
        old = self.columns
        while self.width < width:
            self.width *= 4
        self.columns = _empty(len(old.counts), self.width, old.table.device)
        self.columns.table[:, :, : old.table.shape[2]] = old.table
        self.columns.counts[:] = old.counts


def _empty(rows: int, width: int, device: torch.device) -> Columns:
    table = torch.zeros(rows, 3, width, device=device, dtype=torch.int32)
    return Columns(table, torch.zeros(rows, device=device, dtype=torch.int32))
