"""One forward: packed segments, what each attends to, and where its keys go.

A segment is new tokens over a context of pieces: stored encodings, or other segments of the same forward. The
batch lays the tokens out as one row, and answers the model's attention layer by layer: it gathers and turns
the pieces, attends, and writes new keys to their block or lane. The gather is all a segment sees: what is not
in its pieces is absent, not masked. Does not know: calls, agents, sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from agentcho.engine.abreast import Abreast, Rank, abreast
from agentcho.engine.attention import Locality, Scoring, attend, attend_both, causal, causal_at
from agentcho.engine.encoding import Segment
from agentcho.engine.gather import Gather, Made, Source
from agentcho.engine.rope import Rotation
from agentcho.engine.scratch import Scratch
from agentcho.engine.store import Store

LENT = 1 << 14
"""Tokens of contexts without lanes that are kept through a layer for others to copy."""


class Batch:
    """The packed tokens of one forward and their attention. Use for one forward, then `commit`."""

    def __init__(self, segments: Sequence[Segment], store: Store, rotations: Sequence[Rotation], device: torch.device):
        self._store, self._rotations, self._device, self._scratch = store, rotations, device, Scratch()
        self._spans = [s for s in segments if not s.single]
        rows = abreast([s for s in segments if s.single])
        self.segments = self._spans + [s for group in rows for s in group.segments]
        self._lay_out()
        self._ranks = [self._rank(group) for group in rows]
        made = Made()
        lengths = accumulate(sum(piece.storage.length for piece in s.pieces) for s in self._spans)
        lending = [s.lane is not None or length <= LENT for s, length in zip(self._spans, lengths, strict=True)]
        self._contexts = [_Context(s, device, made, lend) for s, lend in zip(self._spans, lending, strict=True)]

    def _lay_out(self) -> None:
        ids: list[int] = []
        positions: list[int] = []
        wanted: list[int] = []
        for segment in self.segments:
            segment.first = len(ids)
            wanted += [segment.first + i for i in segment.wanted]
            ids += segment.ids
            positions += segment.positions
        self.ids = torch.tensor([ids], device=self._device)
        self.positions = torch.tensor([positions], device=self._device)
        self.wanted = torch.tensor(wanted, device=self._device, dtype=torch.long)

    def _rank(self, rows: Abreast) -> Rank:
        rows.touch()
        return Rank(rows.bucket, torch.tensor(rows.places, device=self._device), rows.segments[0].first, rows.width)

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """Attention of one layer: packed `[1, heads, tokens, dim]` in, `[1, tokens, heads, value_dim]` out."""
        parts = []
        source = Source(self._store, layer, keys[0], values[0], {}, self._scratch)
        for segment, context in zip(self._spans, self._contexts, strict=True):
            k, v = self._keys_of(segment, context, source)
            mask, asked = context.mask(locality), queries[:, :, segment.span()]
            if segment.shared is None:
                parts.append(attend(asked, k[None], v[None], mask, scoring))
            else:
                parts.append(attend_both(asked, segment.shared.get(layer), (k[None], v[None]), mask, scoring.scale))
        parts += [rank.attend(layer, queries, keys, values, locality, scoring) for rank in self._ranks]
        return torch.cat(parts, dim=2).transpose(1, 2).contiguous()

    def _keys_of(self, segment: Segment, context: _Context, source: Source) -> tuple[Tensor, Tensor]:
        """All keys and values `[heads, length, dim]` that a segment attends to, but what it shares; its own last."""
        own_k, own_v = self._own(segment, context, source)
        if segment.shared is not None:
            return self._beside(segment, context, source)
        if segment.storage is not None:
            self._store.write(segment.storage.block, source.layer, own_k, own_v, segment.done)
        before, own = context.gather.length, own_k.shape[1]
        if segment.lane is not None:
            k, v = segment.lane.room(source.layer, before + own)
        elif before:
            k, v = (x.new_empty(x.shape[0], before + own, x.shape[2]) for x in (own_k, own_v))
        else:
            return own_k, own_v
        context.gather.write(source, self._rotations[source.layer], k, v)
        k[:, before:], v[:, before:] = own_k, own_v
        return (k, v) if segment.lane is None else segment.lane.get(source.layer, 0, segment.lane.length + before + own)

    def _beside(self, segment: Segment, context: _Context, source: Source) -> tuple[Tensor, Tensor]:
        """The same of a row over a shared context, which the first of its rows gathers: all tokens of its own lane."""
        assert segment.shared is not None
        assert segment.lane is not None
        if context.gather.length:
            context.gather.write(source, self._rotations[source.layer], *segment.shared.get(source.layer))
        k, v = segment.lane.room(source.layer, len(segment.ids))
        k[:], v[:] = source.keys[:, segment.span()], source.values[:, segment.span()]
        return segment.lane.get(source.layer, 0, segment.lane.length + len(segment.ids))

    def _own(self, segment: Segment, context: _Context, source: Source) -> tuple[Tensor, Tensor]:
        """The keys and values of the segment's message: new ones, among those of its base where it has one."""
        new_k, new_v = source.keys[:, segment.span()], source.values[:, segment.span()]
        if context.base is None:
            return new_k, new_v
        length = context.base.length
        k, v = (x.new_empty(x.shape[0], length, x.shape[2]) for x in (new_k, new_v))
        context.base.write(source, self._rotations[source.layer], k, v)
        return k.index_copy_(1, context.places, new_k), v.index_copy_(1, context.places, new_v)

    def commit(self) -> None:
        """After a forward that went well: lanes have grown, and what it made is stored."""
        for segment in self.segments:
            if segment.lane is not None:
                gathered = 0 if segment.shared else sum(piece.storage.length for piece in segment.pieces)
                segment.lane.length += gathered + len(segment.ids)
        for segment in self.segments:
            if segment.storage is not None:
                written = segment.storage.length if segment.last else segment.done + len(segment.ids)
                segment.storage.segment, segment.storage.written = None, written


class _Context:
    """What one span attends to: how its keys are gathered, their logical positions, and its masks, made once a forward
    and locality. `base` and `places` are of a message that is repaired."""

    def __init__(self, segment: Segment, device: torch.device, made: Made, lend: bool) -> None:
        own = torch.tensor(segment.positions, device=device)
        self.gather = Gather(segment.pieces, device, segment.written, made, lend)
        self.base = None if segment.base is None else Gather([segment.base], device)
        self.places = torch.tensor(segment.places, device=device)
        whole = [own] if self.base is None else self.base.positions()
        self._length = len(whole[0])
        before = self.gather.positions()
        if segment.shared is not None and before:
            segment.shared.lane.place(0, torch.cat(before))
        new = torch.cat([*(before if segment.shared is None else ()), *whole])
        if segment.lane is not None:
            filled = segment.lane.length
            segment.lane.place(filled, new)
            new = segment.lane.positions(filled + len(new)).to(device)
        self._queries, self._keys = own, new
        self._masks: dict[Locality, Tensor | None] = {}

    def mask(self, locality: Locality) -> Tensor | None:
        """Bool `[own, keys]`, or None where all is seen."""
        if locality not in self._masks:
            self._masks[locality] = self._causal(locality)
        return self._masks[locality]

    def _causal(self, locality: Locality) -> Tensor | None:
        if self.base is not None:
            return causal_at(self._queries, self._keys, self.places, self._length, locality)
        return causal(self._queries, self._keys, len(self._queries), locality)
