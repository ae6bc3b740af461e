"""The attention of a forward that keeps its gradients, over segments that attend to each other. Nothing is stored.

Independent of pages, of slots, and of what is trained.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from agentcho.engine.call_layout import ContextPiece, KVEntry, Segment
from agentcho.runner.attention.base import Locality, Mask, Scoring
from agentcho.runner.attention.dense import attend, causal
from agentcho.runner.kv.rope import Rotation

Made = dict[KVEntry, list[tuple[Tensor, Tensor]]]
"""The keys and values `[heads, tokens, dim]` of each layer that earlier forwards computed for an entry, at the position
where it was encoded."""


class GradPart:
    """The attention of a batch on one device, with gradients: keys and values stay in the autograd graph, so that the
    loss of a message also reaches the messages that it reads. A segment sees what a `Batch` would gather for it."""

    def __init__(
        self, segments: Sequence[Segment], rotations: Sequence[Rotation], made: Made | None, device: torch.device
    ) -> None:
        self._segments, self._rotations, self._made = segments, rotations, made
        self._lengths = [len(segment.ids) for segment in self._segments]
        self._places = [_places(segment, device) for segment in self._segments]
        self._masks: dict[Locality, list[Mask]] = {}

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `Batch.attend`."""
        asked = queries.split(self._lengths, dim=2)  # type: ignore[no-untyped-call]
        own_k, own_v = (each[0].split(self._lengths, dim=1) for each in (keys, values))  # type: ignore[no-untyped-call]
        own = {s.entry: pair for s, *pair in zip(self._segments, own_k, own_v, strict=True) if s.entry is not None}
        if self._made is not None:
            for entry, (k, v) in own.items():
                if len(made := self._made.setdefault(entry, [])) == layer:
                    made.append((k, v))
        if locality not in self._masks:
            pairs = zip(self._places, self._lengths, strict=True)
            self._masks[locality] = [causal(places[-count:], places, count, locality) for places, count in pairs]
        turned, parts = dict[tuple[KVEntry, int], Tensor](), list[Tensor]()
        for number, segment in enumerate(self._segments):
            pieces = [self._gather(piece, layer, own, turned) for piece in segment.pieces]
            k = torch.cat([*(k for k, _ in pieces), own_k[number]], dim=1)[None]
            v = torch.cat([*(v for _, v in pieces), own_v[number]], dim=1)[None]
            parts.append(attend(asked[number], k, v, self._masks[locality][number], scoring))
        return torch.cat(parts, dim=2).transpose(1, 2).contiguous()

    def _gather(
        self,
        piece: ContextPiece,
        layer: int,
        own: dict[KVEntry, list[Tensor]],
        turned: dict[tuple[KVEntry, int], Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Keys, rotated to the piece's offset, and values. The keys of a piece that several segments read at the same
        place are rotated once."""
        if piece.entry in own:
            k, v = own[piece.entry]
        else:
            assert self._made is not None
            k, v = self._made[piece.entry][layer]
        known = (piece.entry, piece.shift)
        if known not in turned:
            turned[known] = self._rotations[layer].turn(k, piece.shift)
        return turned[known], v


def _places(segment: Segment, device: torch.device) -> Tensor:
    """The logical positions of everything that a segment attends to, its own tokens last."""
    spans = [(piece.offset, piece.entry.length) for piece in segment.pieces]
    spans.append((segment.position, len(segment.ids)))
    return torch.cat([torch.arange(start, start + length, device=device) for start, length in spans])
