"""What one segment of a forward attends to before itself: where each key lies, and by how much it turns.

Made once a forward; every layer copies its keys and values from there to where they are attended to, all of one kind
at once. Does not know: calls, masks, attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from agentcho.engine.encoding import Piece
from agentcho.engine.rope import Angles, Rotation
from agentcho.engine.store import Store

AT_ONCE = 1 << 19
"""Numbers that are turned at once: what is between stays in the processor's cache."""


class Source(NamedTuple):
    """The tensors of one layer that keys come from: the store's, and those of this forward `[heads, tokens, dim]`."""

    store: Store
    layer: int
    keys: Tensor
    values: Tensor


class _Run(NamedTuple):
    """Neighbours of one kind: tokens `span` of the context, at `rows` of the store or of this forward; `shifts` are the
    positions by which each turns, None where none does."""

    span: slice
    rows: Tensor
    stored: bool
    shifts: Tensor | None

    def read(self, source: Source) -> tuple[Tensor, Tensor]:
        """Its keys and values, `[heads, tokens, dim]`, where they were encoded."""
        if self.stored:
            return source.store.gather(self.rows, source.layer)
        return source.keys[:, self.rows], source.values[:, self.rows]


class Gather:
    """Pieces in a row, and after them the first tokens of one more, where `written` names it and how many."""

    def __init__(
        self, pieces: Sequence[Piece], device: torch.device, written: tuple[Piece, int] | None = None
    ) -> None:  # fmt: skip
        parts = [_Part(piece, piece.storage.length) for piece in pieces]
        if written is not None:
            parts.append(_Part(*written))
        self.length = sum(part.length for part in parts)
        self._parts, self._device = parts, device
        self._runs = _runs(parts, device)
        self._angles: dict[Rotation, list[Angles | None]] = {}

    def positions(self) -> list[Tensor]:
        """The logical position of every token, part by part."""
        spans = ((part.piece.offset, part.piece.offset + part.length) for part in self._parts)
        return [torch.arange(*span, device=self._device) for span in spans]

    def write(self, source: Source, rotation: Rotation, keys: Tensor, values: Tensor) -> None:
        """Copy one layer's into `keys` and `values` `[heads, length, dim]`, keys turned to where this context has
        them."""
        for run, angles in zip(self._runs, self._turns(rotation), strict=True):
            k, v = run.read(source)
            values[:, run.span] = v
            if angles is None:
                keys[:, run.span] = k
            else:
                _turn(rotation, angles, k, keys[:, run.span])

    def _turns(self, rotation: Rotation) -> list[Angles | None]:
        """What each run turns by, computed once a forward and rotation."""
        if rotation not in self._angles:
            shifts = [None if rotation.form == "none" else run.shifts for run in self._runs]
            self._angles[rotation] = [None if s is None else rotation.angles(s, self._device) for s in shifts]
        return self._angles[rotation]


class _Part(NamedTuple):
    """The first `length` tokens of a piece."""

    piece: Piece
    length: int

    @property
    def kind(self) -> tuple[bool, bool]:
        """Whether it is stored, and whether it turns."""
        maker = self.piece.storage.segment
        stored = maker is None or maker.base is not None or maker.done > 0  # where partly stored, wholly by then
        return stored, self.piece.shift != 0

    def rows(self, stored: bool, device: torch.device) -> Tensor:
        """Where it lies."""
        if stored:
            return self.piece.storage.block.slots[: self.length]
        maker = self.piece.storage.segment
        assert maker is not None
        return torch.arange(maker.first, maker.first + self.length, device=device)


def _runs(parts: Sequence[_Part], device: torch.device) -> list[_Run]:
    runs, start = [], 0
    for (stored, turns), neighbours in groupby(parts, lambda part: part.kind):
        together = list(neighbours)
        rows = torch.cat([part.rows(stored, device) for part in together])
        shifts = torch.cat([torch.full((part.length,), part.piece.shift) for part in together]) if turns else None
        runs.append(_Run(slice(start, start + len(rows)), rows, stored, shifts))
        start += len(rows)
    return runs


def _turn(rotation: Rotation, angles: Angles, keys: Tensor, out: Tensor) -> None:
    """Turn `keys` `[heads, tokens, dim]` into `out`, as many tokens at once as stay in the cache."""
    heads, tokens, dim = keys.shape
    most = max(1, AT_ONCE // (heads * dim))
    for start in range(0, tokens, most):
        part = slice(start, start + most)
        rotation.turn_into(out[:, part], keys[:, part], Angles(angles.cos[part], angles.sin[part]))
