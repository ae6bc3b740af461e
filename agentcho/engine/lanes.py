"""Lanes: where running decodes keep their contexts, gathered once and then appended to.

A lane is one row of a bucket; a bucket holds rows of like capacity in one tensor a layer, so that all its rows
attend in one operation. A lane handed out is all zeros: what another row left never stands behind a mask. Does
not know: calls, sampling, the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import torch
from torch import Tensor

from agentcho.engine.blank import zeros
from agentcho.engine.store import LayerShape

_serials = count()
IDLE = 1 / 4
"""Of the tokens that a store may hold: what rows that nobody speaks in may keep."""


class Lane:
    """One row's place. `length` tokens are filled, and nothing beyond `touched` was ever written; `bucket` and `index`
    change when it moves."""

    def __init__(self, bucket: Bucket, index: int) -> None:
        self.bucket, self.index, self.length, self.touched = bucket, index, 0, 0

    @property
    def shared(self) -> Shared | None:
        """What is attended to before it, along with others."""
        return self.bucket.shared

    def put(self, layer: int, start: int, keys: Tensor, values: Tensor) -> None:
        """Write keys and values `[heads, n, dim]` of one layer at tokens start … start + n."""
        stop = start + keys.shape[1]
        self.bucket.keys[layer][self.index, :, start:stop] = keys
        self.bucket.values[layer][self.index, :, start:stop] = values

    def room(self, layer: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Views `[heads, tokens, dim]` of one layer to write the next `tokens` tokens into."""
        return self.get(layer, self.length, self.length + tokens)

    def get(self, layer: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Views of keys and values `[heads, stop - start, dim]` of one layer."""
        bucket = self.bucket
        return bucket.keys[layer][self.index, :, start:stop], bucket.values[layer][self.index, :, start:stop]

    def all(self, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The same of every layer, in order."""
        return (self.get(layer, start, stop) for layer in range(len(self.bucket.keys)))

    def place(self, start: int, positions: Tensor) -> None:
        """Write the logical positions of tokens start … start + n, before their keys and values."""
        self.touched = max(self.touched, start + len(positions))
        self.bucket.positions[self.index, start : start + len(positions)] = positions

    def positions(self, stop: int) -> Tensor:
        """Logical positions of the first `stop` tokens."""
        return self.bucket.positions[self.index, :stop]


class Shared:
    """A context of `tokens` tokens in a lane of its own, which `rows` attend to before their own tokens. Once one of
    them gathers it, it is `claimed`."""

    def __init__(self, lane: Lane, tokens: int) -> None:
        self.lane, self.tokens, self.rows, self.claimed = lane, tokens, 0, False

    def get(self, layer: int) -> tuple[Tensor, Tensor]:
        """Views of keys and values `[heads, tokens, dim]` of one layer."""
        return self.lane.get(layer, 0, self.tokens)


class Bucket:
    """Rows of one capacity: `keys[layer]` and `values[layer]` are `[rows, heads, capacity, dim]`.

    A bucket that is `alone` has one row for good, so that its shapes and alignment depend on that row only. Rows that
    do not go at every step are `apart` from those that do, who would read their contexts along with their own. Rows
    over a `shared` context are among themselves.
    """

    def __init__(
        self,
        layers: list[LayerShape],
        capacity: int,
        alone: bool,
        apart: bool,
        shared: Shared | None,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.capacity, self.alone, self.apart, self.serial = capacity, alone, apart, next(_serials)
        self.shared = shared
        self.lanes: list[Lane] = []
        places = [(shape, shape.device or device) for shape in layers]
        self.keys = [zeros((1, s.heads, capacity, s.key_dim), at, dtype) for s, at in places]
        self.values = [zeros((1, s.heads, capacity, s.value_dim), at, dtype) for s, at in places]
        self.positions = torch.zeros(1, capacity, device=device, dtype=torch.long)
        self._reached = [0]

    @property
    def tokens(self) -> int:
        """Tokens that it takes memory for: on a CPU those that were written before their lanes were given up, elsewhere
        all that there is room for."""
        return sum(self._reached) if self.positions.device.type == "cpu" else self.positions.numel()

    def open(self) -> Lane:
        """A new lane, all zeros."""
        if len(self.lanes) == len(self.positions):
            self._widen()
        lane = Lane(self, len(self.lanes))
        self.lanes.append(lane)
        return lane

    def close(self, lane: Lane) -> None:
        """Give a lane up. The last lane moves into its row, so that rows in use stay the first ones."""
        last = self.lanes.pop()
        dirty = max(lane.touched, last.touched)
        for row in (lane.index, last.index):
            self._reached[row] = max(self._reached[row], dirty)
        for pool in self._pools():
            if last is not lane:
                pool[lane.index, ..., :dirty] = pool[last.index, ..., :dirty]
            pool[last.index, ..., : last.touched] = 0
        if last is not lane:
            self.lanes[lane.index] = last
            last.index = lane.index

    def _pools(self) -> Iterator[Tensor]:
        """All tensors, tokens last."""
        yield from (pool.transpose(2, 3) for pool in (*self.keys, *self.values))
        yield self.positions

    def _widen(self) -> None:
        """Four times the rows where they are cheap: a bucket that fills up at all tends to fill up at once."""
        rows = len(self.positions) * (4 if self.positions.numel() < 4096 else 2)
        dirty = max((lane.touched for lane in self.lanes), default=0)
        self.keys = [_widened(pool, rows, dirty) for pool in self.keys]
        self.values = [_widened(pool, rows, dirty) for pool in self.values]
        wide = self.positions.new_zeros(rows, self.capacity)
        wide[: len(self.positions)] = self.positions
        self.positions = wide
        self._reached = [dirty] * len(self._reached) + [0] * (rows - len(self._reached))


def _widened(pool: Tensor, rows: int, dirty: int) -> Tensor:
    """More rows, of which the first `dirty` tokens alone were ever written."""
    wide = zeros((rows, *pool.shape[1:]), pool.device, pool.dtype)
    wide[: len(pool), :, :dirty] = pool[:, :, :dirty]
    return wide


class Lanes:
    """All lanes of an engine, in buckets of doubling capacity. Emptied buckets are kept for the next of their size
    while they come to `idle` tokens at most: fresh memory costs its first writer as much again as what it writes."""

    def __init__(
        self, layers: list[LayerShape], device: torch.device, dtype: torch.dtype, smallest: int = 128, idle: int = 0
    ) -> None:
        self._layers, self._device, self._dtype = layers, device, dtype
        self._smallest, self._idle = smallest, idle
        self._buckets: list[Bucket] = []

    def open(self, tokens: int, alone: bool = False, apart: bool = False, shared: Shared | None = None) -> Lane:
        """A lane with room for `tokens` tokens; `alone`: in a bucket that no other row ever shares; `apart`: in one of
        rows that do not go at every step; `shared`: beside others over that context."""
        return self._bucket(tokens, alone, apart, shared).open()

    def share(self, tokens: int) -> Shared:
        """A place for a context of so many tokens, for several rows."""
        return Shared(self.open(tokens, alone=True), tokens)

    def forget(self, shared: Shared) -> None:
        """Give up a shared context whose rows are all closed."""
        self._buckets = [bucket for bucket in self._buckets if bucket.shared is not shared]
        self.close(shared.lane)

    def close(self, lane: Lane) -> None:
        """Give a lane up. A bucket that is `alone` gives its memory back; one that is emptied, when another is needed
        and too much is kept."""
        lane.bucket.close(lane)
        if lane.bucket.alone:
            self._buckets.remove(lane.bucket)

    def ensure(self, lane: Lane, tokens: int) -> None:
        """Make room for `tokens` tokens; the lane moves to a wider bucket if its own is too narrow."""
        if tokens <= lane.bucket.capacity:
            return
        old = lane.bucket
        wide = self._bucket(tokens, old.alone, old.apart, old.shared).open()
        for layer in range(len(self._layers)):
            wide.put(layer, 0, *lane.get(layer, 0, lane.length))
        wide.place(0, lane.positions(lane.length))
        self.close(lane)
        lane.bucket, lane.index, lane.touched = wide.bucket, wide.index, wide.touched
        lane.bucket.lanes[lane.index] = lane
        assert old is not lane.bucket

    def __len__(self) -> int:
        return sum(len(bucket.lanes) for bucket in self._buckets)

    def _bucket(self, tokens: int, alone: bool, apart: bool, shared: Shared | None) -> Bucket:
        capacity = self._smallest
        while capacity < tokens:
            capacity *= 2
        kind = capacity, False, apart, shared
        fitting = [each for each in self._buckets if (each.capacity, each.alone, each.apart, each.shared) == kind]
        if fitting and not alone:
            return fitting[0]
        self._drop_idle()
        self._buckets.append(Bucket(self._layers, capacity, alone, apart, shared, self._device, self._dtype))
        return self._buckets[-1]

    def _drop_idle(self) -> None:
        """The smallest empty buckets go first: to touch as much memory again costs least."""
        empty = sorted((bucket for bucket in self._buckets if not bucket.lanes), key=lambda each: each.tokens)
        while sum(bucket.tokens for bucket in empty) > self._idle:
            self._buckets.remove(empty.pop(0))
