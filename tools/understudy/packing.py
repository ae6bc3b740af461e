"""Packs samples into rows of equal length, with a mask that separates them.

Every sample has the positions of a separate prompt: training never shows the model reused encodings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .tokens import Encoded, Framer
from .views import Sample


class Batch(NamedTuple):
    """Packed samples: ids, positions and weights `[rows, length]`, mask `[rows, 1, length, length]`."""

    ids: Tensor
    positions: Tensor
    weights: Tensor
    mask: Tensor

    @property
    def tokens(self) -> int:
        """The number of tokens without padding."""
        return int((self.positions >= 0).sum())


class Row(NamedTuple):
    """One row being filled, with its samples."""

    parts: list[Encoded]

    @property
    def filled(self) -> int:
        """The number of tokens so far."""
        return sum(len(part.ids) for part in self.parts)


def pack(samples: Iterable[Sample], framer: Framer, rows: int, length: int) -> Iterator[Batch]:
    """Batches without end. Each sample goes to the fullest row that still has room for it."""
    filling: list[Row] = []
    for sample in samples:
        encoded = framer.sample(sample.turns)
        if len(encoded.ids) > length:
            continue
        room = [row for row in filling if row.filled + len(encoded.ids) <= length]
        if not room:
            if len(filling) == 2 * rows:
                filling.sort(key=lambda row: -row.filled)
                yield batch(filling[:rows], framer.pad, length)
                filling = filling[rows:]
            room = [Row([])]
            filling += room
        max(room, key=lambda row: row.filled).parts.append(encoded)


def batch(rows: list[Row], pad: int, length: int) -> Batch:
    """The tensors of full rows. Padding has position -1, weight 0 and sees only itself."""
    ids = torch.full((len(rows), length), pad)
    where = torch.full((len(rows), length), -1)
    weights = torch.zeros(len(rows), length)
    documents = -torch.arange(1, length + 1).repeat(len(rows), 1)
    for number, row in enumerate(rows):
        start = 0
        for document, part in enumerate(row.parts):
            stop = start + len(part.ids)
            ids[number, start:stop] = torch.tensor(part.ids)
            where[number, start:stop] = torch.arange(len(part.ids))
            weights[number, start:stop] = torch.tensor(part.weights)
            documents[number, start:stop] = document
            start = stop
    same = documents[:, None, :, None] == documents[:, None, None, :]
    allowed = same & torch.ones(length, length, dtype=torch.bool).tril()
    mask = torch.zeros(allowed.shape, dtype=torch.bfloat16).masked_fill(~allowed, -1e9)
    return Batch(ids, where, weights, mask)
