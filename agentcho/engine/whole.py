"""One forward over many segments that attend to each other, with gradients: nothing is stored, nothing is cached.

Each segment sees exactly what `Batch` would gather for it, the pieces turned to where it places them; keys and values
stay in the autograd graph, so that what a message is worth to its readers reaches the words it was made from. Does not
know: calls, losses.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from agentcho.engine.attention import Locality, Scoring, attend, causal
from agentcho.engine.encoding import Piece, Segment, Storage
from agentcho.engine.rope import Rotation

Made = dict[Storage, list[tuple[Tensor, Tensor]]]
"""Keys and values `[heads, tokens, dim]` a layer, where they were encoded, of what earlier forwards made."""


class Whole:
    """The packed tokens of one forward and their attention. Every piece's storage names its segment, and stands earlier
    in `segments` or in `made`, to which the forward adds its own."""

    def __init__(
        self, segments: Sequence[Segment], rotations: Sequence[Rotation], device: torch.device,
        made: Made | None = None,
    ) -> None:  # fmt: skip
        self.segments, self._rotations, self._made = segments, rotations, made
        ids, positions, wanted = list[int](), list[int](), list[int]()
        for segment in segments:
            segment.first = len(ids)
            wanted += [segment.first + row for row in segment.wanted]
            ids += segment.ids
            positions += segment.positions
        self.ids = torch.tensor([ids], device=device)
        self.positions = torch.tensor([positions], device=device)
        self.wanted = torch.tensor(wanted, device=device, dtype=torch.long)
        self._places = [_places(segment, device) for segment in segments]
        self._here = {segment.storage: segment for segment in segments if segment.storage is not None}

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `Batch.attend`."""
        self._keep(layer, keys[0], values[0])
        turned: dict[tuple[Storage, int], Tensor] = {}
        parts = []
        for segment, places in zip(self.segments, self._places, strict=True):
            own = (keys[0, :, segment.span()], values[0, :, segment.span()])
            pieces = [self._gather(piece, layer, keys[0], values[0], turned) for piece in segment.pieces]
            k, v = (torch.cat(each, dim=1)[None] for each in zip(*pieces, own, strict=True))
            mask = causal(places[-len(segment.ids) :], places, len(segment.ids), locality)
            parts.append(attend(queries[:, :, segment.span()], k, v, mask, scoring))
        return torch.cat(parts, dim=2).transpose(1, 2).contiguous()

    def _gather(
        self, piece: Piece, layer: int, keys: Tensor, values: Tensor, turned: dict[tuple[Storage, int], Tensor]
    ) -> tuple[Tensor, Tensor]:
        maker = self._here.get(piece.storage)
        if maker is None:
            assert self._made is not None
            k, v = self._made[piece.storage][layer]
        else:
            k, v = keys[:, maker.span()], values[:, maker.span()]
        known = (piece.storage, piece.shift)
        if known not in turned:
            turned[known] = self._rotations[layer].turn(k, piece.shift)
        return turned[known], v

    def _keep(self, layer: int, keys: Tensor, values: Tensor) -> None:
        if self._made is not None:
            for storage, segment in self._here.items():
                layers = self._made.setdefault(storage, [])
                if len(layers) == layer:
                    layers.append((keys[:, segment.span()], values[:, segment.span()]))


def _places(segment: Segment, device: torch.device) -> Tensor:
    """Logical positions of all that a segment attends to, its own tokens last."""
    spans = [(piece.offset, piece.storage.length) for piece in segment.pieces]
    spans.append((segment.position, len(segment.ids)))
    return torch.cat([torch.arange(start, start + length, device=device) for start, length in spans])
