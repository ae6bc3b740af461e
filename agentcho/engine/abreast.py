"""Rows of one bucket that feed one token each: they append to their lanes and attend in one operation.

Where they stand is told by tensors alone, so that one that was built can serve other steps of the same shape. Does not
know: tokens, calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from agentcho.engine.attention import Locality, Scoring, attend, attend_both
from agentcho.engine.encoding import Segment
from agentcho.engine.flex import Seen, attend_blocks, has_kernels, rounded
from agentcho.engine.lanes import Bucket, Lane


class Abreast(NamedTuple):
    """Segments of one bucket in the order of their lanes."""

    bucket: Bucket
    segments: list[Segment]

    @property
    def places(self) -> list[list[int]]:
        """Of each: where its token stands, its lane's index, and the tokens that its lane has already."""
        lanes = [_lane(segment) for segment in self.segments]
        positions = [segment.position for segment in self.segments]
        return [positions, [lane.index for lane in lanes], [lane.length for lane in lanes]]

    @property
    def width(self) -> int:
        """Tokens of the longest lane, with its new one."""
        return max(_lane(segment).length for segment in self.segments) + 1

    def touch(self) -> None:
        """Note what the forward is about to write."""
        for segment in self.segments:
            _lane(segment).touched = _lane(segment).length + 1


def abreast(singles: Sequence[Segment]) -> list[Abreast]:
    """Those of each bucket together."""
    buckets: dict[Bucket, list[Segment]] = defaultdict(list)
    for segment in singles:
        buckets[_lane(segment).bucket].append(segment)
    return [Abreast(bucket, sorted(those, key=lambda s: _lane(s).index)) for bucket, those in buckets.items()]


class Rank:
    """The attention of such rows in one forward. `places` `[3, rows]` are `Abreast.places` on the device, `first` is
    where their tokens begin in the packed ones, and `width` bounds the tokens of their lanes. Where each row reads its
    own blocks alone, all rows of the bucket are handed over, whose number seldom changes."""

    def __init__(self, bucket: Bucket, places: Tensor, first: int, width: int) -> None:
        self._bucket, self._by_blocks = bucket, has_kernels(places.device)
        self._at, self._rows, self._ends = places
        self._span = slice(first, first + places.shape[1])
        self._width = rounded(width, bucket.capacity) if self._by_blocks else width
        self._lanes = len(bucket.positions) if self._by_blocks else len(bucket.lanes)
        self._all = self._lanes == places.shape[1]
        home = bucket.positions.device
        bucket.positions[self._rows.to(home), self._ends.to(home)] = self._at.to(home)
        self._seen: dict[Locality, Seen] = {}

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """Append this step's keys, attend: packed `[1, heads, tokens, dim]` in, `[1, heads, rows, value_dim]` out."""
        all_keys, all_values = self._bucket.keys[layer], self._bucket.values[layer]
        all_keys[self._rows, :, self._ends] = keys[0, :, self._span].transpose(0, 1)
        all_values[self._rows, :, self._ends] = values[0, :, self._span].transpose(0, 1)
        asked = queries[0, :, self._span].transpose(0, 1).unsqueeze(2)
        seen_keys, seen_values = (pool[: self._lanes, :, : self._width] for pool in (all_keys, all_values))
        seen, shared, asked = self._see(locality), self._bucket.shared, self._spread(asked)
        if shared is not None:
            out = attend_both(asked, shared.get(layer), (seen_keys, seen_values), seen.mask, scoring.scale)
        elif self._by_blocks:
            out = attend_blocks(asked, seen_keys, seen_values, seen, scoring)
        else:
            out = attend(asked, seen_keys, seen_values, seen.mask, scoring)
        return (out if self._all else out[self._rows]).squeeze(2).transpose(0, 1).unsqueeze(0)

    def _spread(self, queries: Tensor) -> Tensor:
        """Queries at their lanes' rows, zeros where a lane has none in this forward: keys need no copy."""
        if self._all:
            return queries
        spread = queries.new_zeros(self._lanes, *queries.shape[1:])
        spread[self._rows] = queries
        return spread

    def _see(self, locality: Locality) -> Seen:
        if locality not in self._seen:
            self._seen[locality] = Seen(self._visible(locality))
        return self._seen[locality]

    def _visible(self, locality: Locality) -> Tensor:
        """Bool `[lanes, 1, 1, width]`; a lane with no query sees its first, zero key alone."""
        ends = torch.zeros(self._lanes, dtype=torch.long, device=self._ends.device)
        ends[self._rows] = self._ends
        places = torch.arange(self._width, device=self._ends.device)
        mask = places <= ends.unsqueeze(1)
        at = torch.zeros_like(ends)
        at[self._rows] = self._at
        local = locality.visible(at.unsqueeze(1), self._bucket.positions[: self._lanes, : self._width].to(at.device))
        if local is not None:
            mask = mask & (local.squeeze(1) | (places == ends.unsqueeze(1)))
        return mask[:, None, None, :]


def _lane(segment: Segment) -> Lane:
    assert segment.lane is not None
    return segment.lane
