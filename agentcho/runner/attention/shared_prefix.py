"""Attention of rows over runs that they read in place: each run is read once per layer for all of its readers.

If a run is at another position for a row than where it was gathered, the row's queries are rotated by the opposite
shift, because a score depends only on the distance between query and key. The result over a run is combined with the
result over the row's own slot by the sums of the weights, in float32. Independent of how runs are found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from agentcho.engine.call_layout import Segment
from agentcho.runner.attention.base import (
    AttentionBackend,
    Capabilities,
    CausalMask,
    DecodeRows,
    DecodeStep,
    Gathering,
    Locality,
    Mask,
    PrefillStep,
    Scoring,
    Setting,
    Weigher,
)
from agentcho.runner.attention.dense import SlotStep, added, added_by, attend_with_logsumexp
from agentcho.runner.kv.decode_kv import Reading, Reads, SharedRun, Slot
from agentcho.runner.kv.gather import Gather, Source
from agentcho.runner.kv.rope import Angles, Rotation, Workspace

Pair = tuple[Tensor, Tensor]
Span = tuple[SharedRun, int, int]


class SharedPrefix(AttentionBackend):
    """What several rows have in common is gathered once, and attended to once per layer for all of them."""

    name = "shared-prefix"
    does = "what several rows have in common is read once for all of them"
    reads: ClassVar[Reads] = "shared"

    def capabilities(self, setting: Setting) -> Capabilities:
        """It needs layers that weigh all keys by a plain softmax, so that parts of them can be weighed separately, and
        the sum of the weights of each part, which torch returns only on a CPU."""
        elsewhere = next((device.type for device in setting.devices if device.type != "cpu"), None)
        if elsewhere is not None:
            return Capabilities(f"torch gives no sums of weights on {elsewhere}")
        return Capabilities(None if setting.plain else "there are layers with a window, a soft cap or sinks")

    def prepare_decode(self, rows: DecodeRows) -> DecodeStep:
        """See `AttentionBackend.prepare_decode`."""
        return _SharedDecode(rows)

    def prepare_prefill(self, segment: Segment, gathering: Gathering) -> PrefillStep:
        """See `AttentionBackend.prepare_prefill`."""
        return _SharedPrefill(segment, gathering)


class _SharedDecode(SlotStep):
    """Rows over their slots and over what each reads in place."""

    adding = True

    def __init__(self, rows: DecodeRows) -> None:
        super().__init__(rows)
        readings = ((slot.index, slot.readings) for slot in rows.slots)
        self._runs = SharedRuns(readings, rows.count, rows.rows.device)

    def weigh(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `SlotStep.weigh`."""
        rotation, mask = self.rows.rotations[layer], self.masks[locality]
        return self._runs.attend(layer, rotation, queries, own=(keys, values), mask=mask, scale=scoring.scale)


class _SharedPrefill(PrefillStep):
    """A segment over its slot and over what the slot reads in place; the runs that it claims are gathered first."""

    def __init__(self, segment: Segment, gathering: Gathering) -> None:
        slot = segment.slot
        assert isinstance(slot, Slot)
        self._claims = list[tuple[SharedRun, Gather]]()
        for run in segment.claims:
            assert isinstance(run, SharedRun)
            gather = gathering.of(run.pieces)
            run.slot.place(0, torch.cat(gather.positions()))
            self._claims.append((run, gather))
        self._runs = SharedRuns([(0, slot.readings)], 1, gathering.device)

    def prefill(
        self,
        source: Source,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Mask,
        scoring: Scoring,
        tempered: Weigher | None,
    ) -> Tensor:
        """See `PrefillStep.prefill`."""
        for run, gather in self._claims:
            gather.write(source, *run.slot.get(source.layer, 0, run.tokens))
        own = (keys[None], values[None])
        layer, rotation = source.layer, source.rotation
        if isinstance(mask, CausalMask):
            mask = added_by(mask, queries.dtype)
        elif mask is not None:
            mask = added(mask, queries.dtype)
        return self._runs.attend(layer, rotation, queries, own=own, mask=mask, scale=scoring.scale)


class SharedRuns:
    """What some rows of one forward read in place. `readings`: the row index and the readings of each row, in order."""

    def __init__(self, readings: Iterable[tuple[int, Sequence[Reading]]], count: int, device: torch.device) -> None:
        readers = dict[Span, list[tuple[int, int]]]()
        for row, each in readings:
            for reading in each:
                readers.setdefault(reading.span, []).append((row, reading.shift))
        self._spans = [_Span(span, rows, count, device) for span, rows in readers.items()]
        self._workspace = Workspace()

    def attend(
        self, layer: int, rotation: Rotation, queries: Tensor, own: Pair, mask: Tensor | None, scale: float
    ) -> Tensor:
        """`dense.attend` of queries `[rows, heads, n, dim]` over the `own` keys and values `[rows, kv_heads, length,
        dim]` of each row, masked, and over all that it reads in place. On a CPU only."""
        out, sums = attend_with_logsumexp(queries, *own, mask, scale)
        found = out.float()
        for span in self._spans:
            sums = span.add(found, sums, span.weighed(layer, rotation, queries, scale, self._workspace))
        return found.to(queries.dtype)


class _Span:
    """Tokens of one run and their readers: the indices of their rows (None for all rows), and the shifts by which their
    queries are rotated (None for no rotation)."""

    def __init__(self, span: Span, readers: Sequence[tuple[int, int]], count: int, device: torch.device) -> None:
        (self._run, *self._tokens), self._device = span, device
        rows, shifts = [row for row, _ in readers], torch.tensor([-shift for _, shift in readers])
        self._rows = None if rows == list(range(count)) else torch.tensor(rows, device=device)
        self._shifts = shifts if shifts.any() else None
        self._angles: dict[Rotation, Angles] = {}

    def weighed(self, layer: int, rotation: Rotation, queries: Tensor, scale: float, workspace: Workspace) -> Pair:
        """Weighted values `[readers, heads, n, dim]` of its readers, and the logarithms of the sums of the weights."""
        asked = queries if self._rows is None else queries[self._rows]
        if self._shifts is not None and rotation.form != "none":
            turned = torch.empty_like(asked)
            rotation.turn_into(turned, asked, self._turns(rotation, self._shifts), workspace)
            asked = turned
        rows, heads, count, dim = asked.shape
        together = asked.transpose(0, 1).reshape(1, heads, rows * count, dim)
        keys, values = self._run.slot.get(layer, *self._tokens)
        out, sums = attend_with_logsumexp(together, keys[None], values[None], mask=None, scale=scale)
        return (
            out.reshape(heads, rows, count, dim).transpose(0, 1),
            sums.reshape(heads, rows, count).transpose(0, 1),
        )

    def _turns(self, rotation: Rotation, shifts: Tensor) -> Angles:
        """The angles `[readers, 1, 1, 2n]` by which the queries are rotated."""
        if rotation not in self._angles:
            cos, sin = rotation.angles(shifts, self._device)
            self._angles[rotation] = Angles(cos[:, None, None], sin[:, None, None])
        return self._angles[rotation]

    def add(self, found: Tensor, sums: Tensor, theirs: Pair) -> Tensor:
        """Combine its readers' results into `found`, the results of all rows. Returns the combined sums."""
        values, more = theirs
        if self._rows is None:
            found.lerp_(values.float(), torch.sigmoid(more - sums).unsqueeze(-1))
            return torch.logaddexp(sums, more)
        before = sums[self._rows]
        found[self._rows] = torch.lerp(found[self._rows], values.float(), torch.sigmoid(more - before).unsqueeze(-1))
        sums[self._rows] = torch.logaddexp(before, more)
        return sums
