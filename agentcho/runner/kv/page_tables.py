"""Tables of what rows read where it is stored: of each token its row in the pools of pages, by how many positions its
key is turned, and where it stands.

They are tensors that stay where they are, so that a captured forward can serve other rows. Does not know: rows,
attention, who keeps the pages from being written over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from agentcho.engine.call_layout import ContextPiece

NARROWEST = 256


def widths(tokens: int) -> int:
    """How wide the tables are of rows that read so many tokens: rows of like widths attend together."""
    width = NARROWEST
    while width < tokens:
        width *= 4
    return width


class Columns(NamedTuple):
    """Of each row `[3, width]`, int32: rows in the pools, shifts, positions. Only the first `counts` are read."""

    table: Tensor
    counts: Tensor


class Tables:
    """The table of each of several rows, of `width` tokens at most."""

    def __init__(self, width: int, device: torch.device) -> None:
        self.width = width
        self.columns = _empty(1, width, device)

    def write(self, row: int, pieces: Sequence[ContextPiece]) -> None:
        """Say that a row, which read nothing, reads these pieces, which have their pages."""
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

    def take(self, row: int, other: Tables, index: int) -> None:
        """Say that a row reads what row `index` of other tables, no wider ones, reads."""
        self.columns.table[row, :, : other.width] = other.columns.table[index]
        self.columns.counts[row] = other.columns.counts[index]

    def clear(self, row: int) -> None:
        """Say that a row reads nothing."""
        self.columns.counts[row] = 0

    def widen(self, rows: int) -> None:
        """Have so many rows; what is there stays."""
        old, self.columns = self.columns, _empty(rows, self.width, self.columns.table.device)
        for new, each in zip(self.columns, old, strict=True):
            new[: len(each)] = each


def _empty(rows: int, width: int, device: torch.device) -> Columns:
    table = torch.zeros(rows, 3, width, device=device, dtype=torch.int32)
    return Columns(table, torch.zeros(rows, device=device, dtype=torch.int32))
