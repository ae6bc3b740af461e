"""One forward: packed segments, what each of them attends to, and where its keys and values go.

A segment is a run of new tokens over a context of pieces: stored encodings, or other segments of the same forward. The
batch packs all tokens into one row and serves the model's attention layer by layer: it gathers the pieces and rotates
their keys, attends, and writes new keys and values to their pages or slot. A segment sees only what was gathered for
it: other content is absent, not masked.

Single tokens of running rows in one pool attend in one operation. A tensor holds their places, so that a captured
forward can serve other steps of the same shape. Independent of calls, agents and sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor

from agentcho.engine.call_layout import Segment
from agentcho.runner.attention.base import (
    AttentionBackend,
    DecodeRows,
    Gathering,
    Locality,
    Mask,
    Scoring,
    Setting,
)
from agentcho.runner.attention.dense import causal, causal_at
from agentcho.runner.attention.registry import Backends, Rows
from agentcho.runner.gradients import GradPart, Made
from agentcho.runner.kv.decode_kv import Reads, Slot, SlotPool, padded
from agentcho.runner.kv.gather import Gather, Gathered, Source
from agentcho.runner.kv.kv_pool import PagePool
from agentcho.runner.kv.lanes import LanePool, LaneSlot
from agentcho.runner.kv.rope import Rotation, Workspace
from agentcho.runner.reuse.kernels import narrowing_kernel, weigher

LENT = 1 << 14
"""Contexts that are gathered outside of slots are kept through a layer, so that other segments can copy from them, up
to this many context tokens per forward."""


SHORT = 16
"""The most new tokens of a row that read its stored context in place, each by itself. More tokens read a gathered copy
together."""


class Layers:
    """What forwards run over: a pool of pages, the key rotation of each layer, and the attention backends. Token ids
    and logits are on `device`, each layer is where its pages are; `others` are the devices of layers that are not on
    `device`."""

    def __init__(
        self,
        pages: PagePool,
        rotations: Sequence[Rotation],
        device: torch.device,
        backends: Backends | None = None,
    ) -> None:
        self.pages, self.rotations, self.device = pages, rotations, device
        self.others = set(pages.devices) - {device}
        self.backends = backends or Backends(Setting(device, frozenset(pages.devices)))


class _Columns(NamedTuple):
    """For each token of a forward its id and position; for tokens of running rows also the index of the slot, and the
    token's place in it."""

    ids: list[int]
    positions: list[int]
    slots: list[int]
    ends: list[int]


class Batch:
    """The packed tokens of one forward and their attention. Use it for one forward, then `commit`.

    - `segments` are in the order of their tokens and of their rows of logits.
    - With `grad` nothing is stored and gradients are kept. The entry of every piece must then name its segment, which
      comes earlier in `segments`, or be in `made`, to which the forward adds its own entries.
    - With a `size` the forward is padded to that many tokens, and computes logits of all tokens if any are wanted, so
      that its shapes do not depend on the number of real tokens. `asked`: which of these rows are wanted.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        layers: Layers,
        grad: bool = False,
        made: Made | None = None,
        size: int | None = None,
    ) -> None:
        spans, pools = split(segments)
        columns, wanted = _Columns([], [], [], []), list[int]()
        for segment in spans:
            _lay_out(segment, columns, wanted)
        self.segments, groups = [*spans], list[DecodeGroup]()
        for pool, rows in pools.items():
            groups.append(DecodeGroup(pool, rows, columns, wanted))
            self.segments += groups[-1].segments
        self.asked: list[int] | None = None
        spare = 0
        if size is not None:
            spare, self.asked = size - len(columns.ids), wanted
            wanted = [*range(size)] if wanted else []
            for column in columns:
                column.extend([0] * spare)
        all_wanted = len(wanted) == len(columns.ids)
        there = torch.tensor(columns, device=layers.device)
        self.ids, self.positions = there[:1], there[1:2]
        self.wanted = (
            torch.arange(len(columns.ids), device=layers.device)
            if all_wanted
            else torch.tensor(wanted, device=layers.device, dtype=torch.long)
        )
        self._devices, self.pages = layers.pages.devices, layers.pages
        forward = _Forward(spans, groups, layers, spare)
        self._parts: dict[torch.device, _Part | GradPart] = {}
        for device in (layers.device, *layers.others):
            self._parts[device] = (
                GradPart(spans, layers.rotations, made, device) if grad else _Part(forward, there.to(device))
            )

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """Attention of one layer: packed `[1, heads, tokens, dim]` in, `[1, tokens, heads, value_dim]` out. With
        rounded keys and values, tokens of the forward already see each other as later readers will."""
        if self.pages.rounding:
            keys, values = self.pages.as_read(keys), self.pages.as_read(values)
        return self._parts[self._devices[layer]].attend(layer, queries, keys, values, locality, scoring)

    def commit(self) -> None:
        """After a successful forward, note that slots have grown and that entries were written."""
        commit(self.segments)


def commit(segments: Sequence[Segment]) -> None:
    """After a successful forward, note that slots have grown and that entries were written."""
    for segment in segments:
        if segment.slot is not None:
            assert isinstance(segment.slot, Slot)
            gathered = segment.gathered if segment.pieces or segment.copied else 0
            segment.slot.length += len(segment.ids) + gathered
        if segment.entry is not None:
            written = segment.entry.length if segment.last else segment.done + len(segment.ids)
            segment.entry.segment, segment.entry.written = None, written


def split(segments: Sequence[Segment]) -> tuple[list[Segment], dict[SlotPool, list[Segment]]]:
    """Split segments into those that attend each by itself and, pool by pool, those of running rows that attend
    together: single tokens; where the pool's backend supports it, speculated tokens; and short feeds of rows that read
    in place."""
    spans, pools = list[Segment](), dict[SlotPool, list[Segment]]()
    for segment in segments:
        slot = segment.slot
        assert slot is None or isinstance(slot, Slot)
        if slot is None or segment.pieces or segment.entry is not None or not _together(segment, slot.pool):
            spans.append(segment)
        else:
            pools.setdefault(slot.pool, []).append(segment)
    return spans, pools


def in_place(segment: Segment) -> bool:
    """Whether all tokens of a segment attend together with those of other rows that read in place."""
    slot = segment.slot
    return isinstance(slot, LaneSlot) and segment.entry is None and _together(segment, slot.pool)


def _together(segment: Segment, pool: SlotPool) -> bool:
    count = len(segment.ids)
    return count == 1 or (pool.several and (segment.row or (pool.reads == "pages" and count <= SHORT)))


def _lay_out(segment: Segment, columns: _Columns, wanted: list[int]) -> None:
    """Append the tokens of a segment to the columns of its forward."""
    first, count = len(columns.ids), len(segment.ids)
    segment.first = first
    wanted += [first + i for i in segment.wanted]
    for column, added in zip(columns, (segment.ids, segment.positions, [0] * count, [0] * count), strict=True):
        column.extend(added)


class DecodeGroup:
    """Tokens of running rows of one pool, in the order of their slots, appended to the columns of their forward.
    `first` and `stop`: the range of their columns. `width`: the number of tokens in the longest slot, new ones
    included. `stored`: the most stored tokens that one row reads in place. `most`: the most new tokens of one row.
    `plain`: no row has keys that a reuse method weighs differently."""

    def __init__(self, pool: SlotPool, segments: Sequence[Segment], columns: _Columns, wanted: list[int]) -> None:
        self.pool, self.plain = pool, True
        self.first, self.width = len(columns.ids), 0
        self.stored = 0
        self.slots = list[Slot]()
        self.segments = sorted(segments, key=attrgetter("slot.index"))
        self.most = max(len(segment.ids) for segment in self.segments)
        for segment in self.segments:
            slot, segment.first, count = segment.slot, len(columns.ids), len(segment.ids)
            assert isinstance(slot, Slot)
            self.slots.append(slot)
            slot.touched = max(slot.touched, slot.length + count)  # the forward will write there
            self.stored = max(self.stored, slot.reading if isinstance(slot, LaneSlot) else 0)
            self.plain = self.plain and slot.parallel is None
            self.width = max(self.width, slot.length + count)
            columns.ids.extend(segment.ids)
            columns.positions.extend(range(segment.position, segment.position + count))
            columns.slots.extend([slot.index] * count)
            columns.ends.extend(range(slot.length, slot.length + count))
            wanted += [segment.first + i for i in segment.wanted]
        self.stop = len(columns.ids)


def in_lanes(pool: LanePool, segments: Sequence[Segment]) -> tuple[DecodeGroup, list[list[int]], list[int]]:
    """A forward of tokens of lane rows only: their group, as a batch lays it out, its columns, and the indices of the
    wanted tokens."""
    columns, wanted = _Columns([], [], [], []), list[int]()
    return DecodeGroup(pool, segments, columns, wanted), [*columns], wanted


class LaneRows(NamedTuple):
    """The shape of a forward of new tokens of lane rows only: `tokens` tokens, each of which reads at most `stored`
    tokens where they are stored and `own` tokens in its lanes. Padding tokens belong to row 0."""

    pool: LanePool
    tokens: int
    stored: int
    own: int


class LaneBatch:
    """The tokens of a forward of lane rows, and their attention. `table` `[4, tokens]` has the columns ids, positions,
    rows and places; the same tensors serve other forwards with another table. Slots are not updated: the caller does
    that."""

    def __init__(self, asked: LaneRows, layers: Layers, table: Tensor) -> None:
        self.ids, self.positions = table[:1], table[1:2]
        self.wanted = torch.arange(asked.tokens, device=table.device)
        serving = layers.backends.serving[Rows("pages", table.device)]
        _, positions, rows, ends = table
        homes, places = asked.pool.locate(rows, ends)
        given = DecodeRows(
            pool=asked.pool,
            slots=(),
            rows=rows,
            positions=positions,
            ends=ends,
            homes=homes,
            places=places,
            nth=0,
            most=1,
            width=asked.own,
            stored=asked.stored,
            count=asked.tokens,
            whole=False,
            plain=True,
            pages=layers.pages,
            rotations=layers.rotations,
        )
        self._decoding = Decoding(given, slice(0, asked.tokens), serving.backend)

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `Batch.attend`."""
        return self._decoding.attend(layer, queries, keys, values, locality, scoring).contiguous()


class _Forward(NamedTuple):
    """What the parts of a batch share. `spare`: the number of padding tokens at its end."""

    spans: list[Segment]
    groups: list[DecodeGroup]
    layers: Layers
    spare: int = 0


class _Part:
    """The attention of a batch on one device, which holds its columns in `table`."""

    def __init__(self, forward: _Forward, table: Tensor) -> None:
        self._layers = forward.layers
        self._spans, self._spare = forward.spans, forward.spare
        self._decoding = list[Decoding]()
        for group in forward.groups:
            serving = self._layers.backends.serving[Rows(group.pool.reads, table.device, group.plain)]
            span = slice(group.first, group.stop)
            rows = _decode_rows(group, table[:, span], self._layers, serving.can.padded)
            self._decoding.append(Decoding(rows, span, serving.backend))
        if self._spans:
            self._begin_spans(table.device)

    def _begin_spans(self, device: torch.device) -> None:
        gathered, self._workspace = Gathered(), Workspace()
        stored = [() if s.slot is None else s.slot.stored for s in self._spans]
        both = zip(self._spans, stored, strict=True)
        lengths = accumulate(sum(piece.entry.length for piece in (*s.pieces, *more)) for s, more in both)
        triples = zip(self._spans, stored, lengths, strict=True)
        lending = [(s.slot is not None and not more) or length <= LENT for s, more, length in triples]
        pairs = zip(self._spans, lending, strict=True)
        backends = self._layers.backends
        self._contexts = [_Context(each, Gathering(device, gathered, lend), backends) for each, lend in pairs]

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `Batch.attend`."""
        parts = list[Tensor]()
        if self._spans:
            rotation = self._layers.rotations[layer]
            source = Source(self._layers.pages, layer, rotation, keys[0], values[0], {}, self._workspace)
            for context in self._contexts:
                parts.append(context.attend(source, queries, locality, scoring))
        for each in self._decoding:
            parts.append(each.attend(layer, queries, keys, values, locality, scoring))
        if self._spare:
            parts.append(values.new_zeros(1, self._spare, queries.shape[1], values.shape[3]))
        return parts[0].contiguous() if len(parts) == 1 else torch.cat(parts, dim=1)


class Decoding:
    """New tokens of rows of one pool in one forward; `span` is their range among its tokens."""

    def __init__(self, rows: DecodeRows, span: slice, backend: AttentionBackend) -> None:
        home = rows.pool.positions.device
        rows.pool.positions[rows.homes.to(home), rows.places.to(home)] = rows.positions.to(home)
        self._rows, self._span = rows, span
        self._step = backend.prepare_decode(rows)

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `Batch.attend`; only for the tokens of the group. Their keys and values are written first."""
        rows, span = self._rows, self._span
        for pool, given in ((rows.pool.keys[layer], keys), (rows.pool.values[layer], values)):
            pool[rows.homes, :, rows.places] = given[0, :, span].transpose(0, 1)
        return self._step.decode(layer, queries[0, :, span].transpose(0, 1), locality, scoring).unsqueeze(0)


def _decode_rows(group: DecodeGroup, table: Tensor, layers: Layers, pad: bool) -> DecodeRows:
    """The tokens of a group, prepared for a backend. `table` has their columns. `pad`: see `Capabilities.padded`."""
    pool = group.pool
    _, positions, rows, ends = table
    count = len(pool.positions) if pad else len(pool.slots)
    nth: Tensor | int = 0
    if group.most > 1:
        nth = torch.tensor([i for segment in group.segments for i in range(len(segment.ids))], device=table.device)
    homes, places = pool.locate(rows, ends) if isinstance(pool, LanePool) else (rows, ends)
    return DecodeRows(
        pool=pool,
        slots=group.slots,
        rows=rows,
        positions=positions,
        ends=ends,
        homes=homes,
        places=places,
        nth=nth,
        most=group.most,
        width=padded(group.width, pool.capacity) if pad and pool.reads == "copy" else group.width,
        stored=group.stored,
        count=count,
        whole=count == len(group.segments) and group.most == 1,
        plain=group.plain,
        pages=layers.pages,
        rotations=layers.rotations,
    )


class _Context:
    """What one segment attends to by itself: how its keys and values are gathered, their logical positions, and its
    masks, which are made once per forward and locality. `_base` and `_places` are those of a message under repair."""

    def __init__(self, segment: Segment, gathering: Gathering, backends: Backends) -> None:
        device, gathered, lend = gathering
        self._segment, self._queries = segment, torch.tensor(segment.positions, device=device)
        self._gather = Gather(segment.pieces, device, segment.written, gathered, lend)
        self._base = None if segment.base is None else Gather([segment.base], device)
        self._places = torch.tensor(segment.places, device=device)
        self._narrow = None if segment.narrowing is None else narrowing_kernel(segment.narrowing)
        whole = [self._queries] if self._base is None else self._base.positions()
        self._length = len(whole[0])
        slot = segment.slot
        assert slot is None or isinstance(slot, Slot)
        self._slot = slot
        new = torch.cat([*self._gather.positions(), *whole])
        reads: Reads = "copy"
        parallel = segment.parallel
        if slot is not None:
            filled = slot.length
            slot.place(filled, new)
            new = slot.positions(filled + len(new)).to(device)
            slot.parallel = segment.parallel if segment.pieces else slot.parallel
            reads, parallel = slot.pool.reads, slot.parallel
        serving = backends.serving[Rows(reads, device, parallel is None)]
        self._step = serving.backend.prepare_prefill(segment, gathering)
        self._keys = new = torch.cat([*self._step.before, new])
        self._tempered = None if parallel is None else weigher([(0, parallel)], 1, len(new), device)
        self._masks: dict[Locality, Mask] = {}

    def attend(self, source: Source, queries: Tensor, locality: Locality, scoring: Scoring) -> Tensor:
        """See `Batch.attend`; only for the segment's own tokens."""
        segment = self._segment
        if locality not in self._masks:
            self._masks[locality] = self._mask(locality)
        k, v = self._keys_and_values(source)
        mask, asked = self._masks[locality], queries[:, :, segment.span()]
        out = self._step.prefill(source, asked, k, v, mask=mask, scoring=scoring, tempered=self._tempered)
        return out.transpose(1, 2)

    def _mask(self, locality: Locality) -> Mask:
        """`[own, keys]`, or None if everything is seen."""
        if self._base is not None:
            return causal_at(self._queries, self._keys, self._places, self._length, locality)
        return causal(self._queries, self._keys, len(self._queries), locality)

    def _keys_and_values(self, source: Source) -> tuple[Tensor, Tensor]:
        """All keys and values `[heads, length, dim]` that are gathered for the segment, its own last."""
        segment, (own_k, own_v) = self._segment, self._own(source)
        if segment.entry is not None:
            source.pages.write(segment.entry.block, source.layer, own_k, own_v, segment.done)
        before, own = self._gather.length, own_k.shape[1]
        if self._slot is not None and self._slot.scattered:
            self._slot.put(source.layer, self._slot.length, own_k, own_v)
            return self._slot.get(source.layer, 0, self._slot.length + own)
        if self._slot is not None:
            k, v = self._slot.room(source.layer, before + own)
        elif before:
            k, v = (x.new_empty(x.shape[0], before + own, x.shape[2]) for x in (own_k, own_v))
        else:
            return own_k, own_v
        self._gather.write(source, k, v, (own_k, own_v))
        if self._slot is not None:
            k, v = self._slot.get(source.layer, 0, self._slot.length + before + own)
        return k, v

    def _own(self, source: Source) -> tuple[Tensor, Tensor]:
        """The keys and values of the segment's message: the new ones, merged into those of its base if it has one."""
        span = self._segment.span()
        new_k, new_v = source.keys[:, span], source.values[:, span]
        if self._base is None:
            return new_k, new_v
        k, v = (x.new_empty(x.shape[0], self._base.length, x.shape[2]) for x in (new_k, new_v))
        self._base.write(source, k, v)
        places = self._places
        if self._narrow is not None:
            left = list(self._narrow(self._segment, source.layer, source.pages.layers, new_v, v))
            places, new_k, new_v = places[left], new_k[:, left], new_v[:, left]
        k, v = k.index_copy_(1, places, new_k), v.index_copy_(1, places, new_v)
        return source.pages.as_read(k), source.pages.as_read(v)  # rotated keys are rounded at their new position
