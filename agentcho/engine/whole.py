"""One forward over many segments that attend to each other, with gradients: nothing is stored, nothing is cached.

Each segment sees exactly what `Batch` would gather for it, the pieces turned to where it places them; keys and values
stay in the autograd graph, so that what a message is worth to its readers reaches the words it was made from. Does not
know: calls, losses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
        self._masks: dict[Locality, list[Tensor | None]] = {}

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `Batch.attend`."""
        lengths = [len(segment.ids) for segment in self.segments]
        asked = queries.split(lengths, dim=2)  # type: ignore[no-untyped-call]
        own_k, own_v = (each[0].split(lengths, dim=1) for each in (keys, values))  # type: ignore[no-untyped-call]
        made = {s.storage: pair for s, *pair in zip(self.segments, own_k, own_v, strict=True) if s.storage is not None}
        if self._made is not None:
            self._keep(layer, made)
        turned: dict[tuple[Storage, int], Tensor] = {}
        parts = []
        for number, (segment, mask) in enumerate(zip(self.segments, self._masks_of(locality), strict=True)):
            pieces = [self._gather(piece, layer, made, turned) for piece in segment.pieces]
            k = torch.cat([*(k for k, _ in pieces), own_k[number]], dim=1)[None]
            v = torch.cat([*(v for _, v in pieces), own_v[number]], dim=1)[None]
            parts.append(attend(asked[number], k, v, mask, scoring))
        return torch.cat(parts, dim=2).transpose(1, 2).contiguous()

    def _gather(
        self, piece: Piece, layer: int, made: Mapping[Storage, Sequence[Tensor]],
        turned: dict[tuple[Storage, int], Tensor],
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Keys, turned to where the piece stands, and values; what several readers have at one place is turned once."""
        if piece.storage in made:
            k, v = made[piece.storage]
        else:
            assert self._made is not None
            k, v = self._made[piece.storage][layer]
        known = (piece.storage, piece.shift)
        if known not in turned:
            turned[known] = self._rotations[layer].turn(k, piece.shift)
        return turned[known], v

    def _keep(self, layer: int, made: Mapping[Storage, Sequence[Tensor]]) -> None:
        assert self._made is not None
        for storage, (k, v) in made.items():
            layers = self._made.setdefault(storage, [])
            if len(layers) == layer:
                layers.append((k, v))

    def _masks_of(self, locality: Locality) -> list[Tensor | None]:
        """A mask a segment, made once a forward and locality."""
        if locality not in self._masks:
            own = [len(segment.ids) for segment in self.segments]
            pairs = zip(self._places, own, strict=True)
            self._masks[locality] = [causal(places[-count:], places, count, locality) for places, count in pairs]
        return self._masks[locality]


def _places(segment: Segment, device: torch.device) -> Tensor:
    """Logical positions of all that a segment attends to, its own tokens last."""
    spans = [(piece.offset, piece.storage.length) for piece in segment.pieces]
    spans.append((segment.position, len(segment.ids)))
    return torch.cat([torch.arange(start, start + length, device=device) for start, length in spans])
