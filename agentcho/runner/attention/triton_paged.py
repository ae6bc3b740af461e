"""Attention of single tokens over contexts that stay where they are stored: a Triton kernel reads them by tables, and
rotates keys as it reads them, so that no row has a copy of its context.

A row's own tokens are in its lanes, and the same kernel reads them. A second kernel combines the results of its
programs by the sums of the weights, in float32. Both are compared with dense attention over rotated copies before they
are used (see `trial`). Where they are refused, running rows go on with such copies, and later rows gather their
contexts.

torch's own `varlen_attn` over a `block_table` does not fit: it takes pages of a fixed size, filled from their first
token on, with keys that are rotated already, one table for all heads, and no soft cap. Here each message begins in a
page of its own, and its keys are stored unshifted for any reader.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from agentcho.engine.call_layout import Segment
from agentcho.runner.attention.base import (
    AttentionBackend,
    Capabilities,
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
from agentcho.runner.attention.dense import DensePrefill, attend
from agentcho.runner.attention.trial import Trial
from agentcho.runner.kv.decode_kv import Reads, Slot
from agentcho.runner.kv.gather import Source
from agentcho.runner.kv.lanes import LANE, LanePool
from agentcho.runner.kv.page_tables import Columns
from agentcho.runner.kv.rope import Angles, Rotation, Workspace

SPAN = 256
"""The number of tokens that one program reads."""
BLOCK = 32
"""The number of tokens that it reads at a time; in float32, `LEAST`."""
LEAST = 16
"""The smallest matrix dimension that Triton multiplies."""
WINDOWS = {"full": 0, "sliding": 1, "chunked": 2}
Pair = tuple[Tensor, Tensor]


class TokenQueries(NamedTuple):
    """Queries `[n, heads, dim]`, and for each the index of its row in tables and lanes, its position, and its place in
    the lanes, all `[n]`."""

    queries: Tensor
    rows: Tensor
    positions: Tensor
    ends: Tensor


class DecodeKV(NamedTuple):
    """Keys and values `[blocks, kv_heads, LANE, dim]` of rows' own tokens, their positions `[blocks, LANE]`, and the
    blocks of each row, in order, `[rows, most]`, int32. All queries are within the first `reach` tokens of their
    rows."""

    keys: Tensor
    values: Tensor
    positions: Tensor
    blocks: Tensor
    reach: int


class PagedKV(NamedTuple):
    """Pools `[token rows, kv_heads, dim]` of one layer, its key rotation, and what each row reads there: at most
    `reach` tokens."""

    keys: Tensor
    values: Tensor
    rotation: Rotation
    columns: Columns
    reach: int


class TritonPaged(AttentionBackend):
    """No row has a copy of its context: a kernel reads it from the pages of the store, and rotates keys as it reads."""

    name = "triton-paged"
    does = "a Triton kernel reads contexts where they are stored, and turns keys as it reads them"
    reads: ClassVar[Reads] = "pages"

    def capabilities(self, setting: Setting) -> Capabilities:
        """It reads unrounded keys and values, and the pages of one device."""
        missing = why_not_triton(setting.device)
        if not setting.devices <= {setting.device}:
            missing = "layers are on several devices"
        if setting.rounded:
            missing = "keys and values in 8 bits are made whole as they are copied"
        return Capabilities(missing, padded=True, compiled=True)

    def refused(self, device: torch.device) -> str | None:
        """See `AttentionBackend.refused`."""
        return TRIAL.refused.get(device)

    def prepare_decode(self, rows: DecodeRows) -> DecodeStep:
        """See `AttentionBackend.prepare_decode`."""
        return _PagedDecode(rows)

    def prepare_prefill(self, segment: Segment, gathering: Gathering) -> PrefillStep:
        """See `AttentionBackend.prepare_prefill`."""
        return _PagedPrefill(segment, gathering)


class _PagedDecode(DecodeStep):
    """Rows over the pages in the tables of their pool, and over their own tokens."""

    def __init__(self, rows: DecodeRows) -> None:
        assert isinstance(rows.pool, LanePool)
        self._rows, self._pool = rows, rows.pool

    def decode(self, layer: int, queries: Tensor, locality: Locality, scoring: Scoring) -> Tensor:
        """See `DecodeStep.decode`."""
        rows, pool = self._rows, self._pool
        asked = TokenQueries(queries, rows.rows, rows.positions, rows.ends)
        keys, values = rows.pages.pools(layer)
        store = PagedKV(keys, values, rows.rotations[layer], columns=pool.tables.columns, reach=rows.stored)
        own = pool.keys[layer], pool.values[layer], pool.positions
        lanes = DecodeKV(*own, blocks=pool.lanes, reach=rows.width)
        return attend_stored(asked, store, lanes, locality=locality, scoring=scoring)


class _PagedPrefill(DensePrefill):
    """A segment of several tokens: what its row reads where it is stored is copied in front of its own tokens."""

    def __init__(self, segment: Segment, gathering: Gathering) -> None:
        slot = segment.slot
        assert isinstance(slot, Slot)
        self._stored = gathering.of(slot.stored)
        self.before = self._stored.positions()

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
        keys, values = self._stored.before(source, keys, values)
        return super().prefill(source, queries, keys, values, mask=mask, scoring=scoring, tempered=tempered)


def why_not_triton(device: torch.device) -> str | None:
    """Why there is no kernel for a device; None if there is one, as far as is known."""
    if device.type != "cuda":
        return f"Triton has no kernels for {device.type}"
    return None if find_spec("triton") else "Triton is not installed"


def attend_stored(asked: TokenQueries, store: PagedKV, lanes: DecodeKV, locality: Locality, scoring: Scoring) -> Tensor:
    """`[n, heads, value_dim]`: each query over everything its row reads in the pools, and over its lanes up to the
    query's own token; both within the locality, except that a token always sees itself."""
    _, heads, dim = asked.queries.shape
    kind = PagedKind(
        device=asked.queries.device,
        dtype=asked.queries.dtype,
        heads=lanes.keys.shape[1],
        groups=heads // lanes.keys.shape[1],
        dim=dim,
        value_dim=lanes.values.shape[3],
        rotation=store.rotation,
        locality=locality,
        scale=scoring.scale,
        softcap=scoring.softcap,
    )
    return TRIAL.run(kind, asked, store, lanes, locality, scoring)


class PagedKind(NamedTuple):
    """Equal kinds share one kernel: `groups` query heads share each of the `heads` key heads."""

    device: torch.device
    dtype: torch.dtype
    heads: int
    groups: int
    dim: int
    value_dim: int
    rotation: Rotation
    locality: Locality
    scale: float
    softcap: float | None

    def form(self, own: bool) -> Any:
        """The compile-time constants of the kernel: see `triton_kernel.KernelForm`."""
        from agentcho.runner.attention.triton_kernel import KernelForm

        pairs, begin, step, gap = (0, 0, 1, 0) if own else self.rotation.pairs
        if begin and begin + 2 * pairs != self.dim:
            raise ValueError("the rotary dimensions lie in the middle of a head; they must be at its beginning or end")
        rest, rest_begin = self.dim - 2 * pairs, 2 * pairs if begin == 0 else 0
        heads = own, self.heads, self.groups, self.dim, self.value_dim
        window = WINDOWS[self.locality.kind]
        wide = self.dtype == torch.float32 or self.device.type == "cpu"  # the interpreter cannot multiply bfloat16
        quick = self.device.type == "cuda" and torch.version.hip is None  # only NVIDIA GPUs have these instructions
        scored = window, self.locality.size, self.softcap is not None, wide, quick
        blocks = [_power(each) for each in (self.groups, self.value_dim, pairs, rest)]
        block = LEAST if self.dtype == torch.float32 else BLOCK  # float32 products are summed in registers
        read = SPAN, min(block, SPAN), LANE
        return KernelForm(*heads, pairs, begin, step, gap, rest, rest_begin, *scored, *read, *blocks)


def _power(size: int) -> int:
    return max(LEAST, 1 << (size - 1).bit_length() if size else 0)


@cache
def _phases(rotation: Rotation, device: torch.device) -> Tensor:
    """The angle of each pair for one position, in units of 2^-64 of a turn `[n]`, int64, which wrap around."""
    angles = [] if rotation.frequencies is None else rotation.frequencies.tolist()
    turns = [round(angle / (2 * math.pi) * 2**64) % 2**64 for angle in angles] or [0]
    return torch.tensor([turn - 2**64 if turn >= 2**63 else turn for turn in turns], device=device)


def attend_parts(kind: PagedKind, asked: TokenQueries, store: PagedKV, lanes: DecodeKV) -> Pair:
    """The results for each part of what is read: weighted values `[n, kv_heads, parts, groups, value_dim]`, zeros where
    nothing is seen, and the logarithms of the sums of their weights, `[n, kv_heads, parts, groups]`, float32."""
    stored = -(-store.reach // SPAN)
    parts, queries = stored + -(-lanes.reach // SPAN), asked.queries.contiguous()
    sums = torch.empty(len(queries), kind.heads, parts, kind.groups, device=kind.device)
    out = sums.new_empty(*sums.shape, kind.value_dim)
    where = asked.rows, asked.positions, _phases(kind.rotation, kind.device), lanes.blocks, out, sums
    softcap = kind.softcap or 1.0
    table, counts = store.columns
    pools, own = (queries, store.keys, store.values, table, counts), (queries, *lanes[:3], asked.ends)
    grid, most = (len(queries), kind.heads), lanes.blocks.shape[1]
    if stored:
        _launch((*grid, stored), *pools, *where, table.shape[2], parts, 0, kind.scale, softcap, kind.form(False))
    _launch((*grid, parts - stored), *own, *where, most, parts, stored, kind.scale, softcap, kind.form(True))
    return out, sums


def _launch(grid: tuple[int, ...], *given: Any) -> None:
    """Run the kernel."""
    from agentcho.runner.attention.triton_kernel import weigh

    device = given[0].device
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        weigh[grid](*given)


def merge_parts(kind: PagedKind, out: Tensor, sums: Tensor, sinks: Tensor | None) -> Tensor:
    """Combine parts: `[n, heads, value_dim]`, zeros where nothing is seen. `sinks` `[heads]` take their share of the
    weight."""
    count, heads, parts, groups = sums.shape
    merged = torch.empty(count, heads * groups, kind.value_dim, device=kind.device, dtype=kind.dtype)
    taken = sums if sinks is None else sinks.float().contiguous()
    tensors = out, sums, taken, merged
    _merge((count, heads * groups), tensors, parts=parts, sunk=sinks is not None, form=kind.form(True))
    return merged


def _merge(grid: tuple[int, ...], tensors: tuple[Tensor, ...], **how: Any) -> None:
    """Run the kernel that combines parts."""
    from agentcho.runner.attention.triton_kernel import merge

    device = tensors[0].device
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        merge[grid](*tensors, **how)


def attend_copied(asked: TokenQueries, store: PagedKV, lanes: DecodeKV, locality: Locality, scoring: Scoring) -> Tensor:
    """`attend_stored` by dense attention over copies, with keys rotated as for gathered contexts."""
    (queries, rows, positions, ends), reach = asked, lanes.reach
    table, counts = store.columns.table[rows, :, : store.reach], store.columns.counts[rows]
    inside = torch.arange(table.shape[2], device=table.device) < counts.unsqueeze(1)
    blocks = lanes.blocks[rows, : -(-reach // LANE)].long()
    pairs = list[Tensor]()
    for pool, lane in ((store.keys, lanes.keys), (store.values, lanes.values)):
        found = pool[table[:, 0].long().flatten()].transpose(0, 1)
        found = _turned(store.rotation, found, table[:, 1].flatten()) if pool is store.keys else found
        found = found.reshape(len(found), *inside.shape, found.shape[2]).transpose(0, 1)
        found = found.masked_fill(~inside[:, None, :, None], 0)  # zeros beyond each row's count
        own = lane[blocks].transpose(1, 2).flatten(2, 3)
        pairs.append(torch.cat([found, own[:, :, :reach]], 2))
    places = torch.arange(reach, device=ends.device)
    seen = torch.cat([inside, places <= ends.unsqueeze(1)], 1)
    stand = lanes.positions[blocks].flatten(1)[:, :reach]
    near = locality.visible(positions.unsqueeze(1), torch.cat([table[:, 2], stand], 1))
    if near is not None:
        itself = torch.cat([torch.zeros_like(inside), places == ends.unsqueeze(1)], 1)
        seen = seen & (near[:, 0] | itself)
    return attend(queries.unsqueeze(2), pairs[0], pairs[1], seen[:, None, None], scoring).squeeze(2)


def _turned(rotation: Rotation, keys: Tensor, shifts: Tensor) -> Tensor:
    """Keys `[heads, tokens, dim]`, each moved by its shift."""
    if rotation.form == "none":
        return keys
    out, angles = torch.empty_like(keys), rotation.angles(shifts.cpu(), keys.device)
    rotation.turn_into(out, keys, Angles(*angles), Workspace())
    return out


def _gaps(kind: PagedKind) -> Iterator[float]:
    """The errors of the kernel against dense attention, as a share of the largest value: over rows that read several
    parts of their tables, one token, and nothing, moved far and near, with and without sinks."""
    dice, width, rows = torch.Generator(kind.device).manual_seed(0), 2 * SPAN, 4

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=dice, device=kind.device, dtype=kind.dtype)

    def picked(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=dice, device=kind.device)

    pools = drawn(3 * SPAN, kind.heads, kind.dim), drawn(3 * SPAN, kind.heads, kind.value_dim)
    held = -(-width // LANE)
    lanes = [drawn(rows * held, kind.heads, LANE, dim) for dim in (kind.dim, kind.value_dim)]
    blocks = torch.randperm(rows * held, generator=dice, device=kind.device, dtype=torch.int32).view(rows, held)
    at = picked(1 << 16, 1 << 17, rows)
    near = at[:, None] - picked(0, 2 * max(kind.locality.size, 1), rows, width)
    table = torch.stack([picked(0, 3 * SPAN, rows, width), picked(-(1 << 16), 1 << 16, rows, width), near], 1)
    counts = torch.tensor([width - 3, SPAN + 1, 1, 0], device=kind.device, dtype=torch.int32)
    ends = torch.tensor([0, SPAN + 3, 5, SPAN - 1], device=kind.device)
    store = PagedKV(*pools, kind.rotation, columns=Columns(table.int(), counts), reach=width)
    queries = drawn(rows, kind.heads * kind.groups, kind.dim)
    asked = TokenQueries(queries, torch.arange(rows, device=kind.device), at, ends)
    stand = at[:, None] - picked(0, 2 * max(kind.locality.size, 1), rows, held * LANE)
    positions = torch.empty(rows * held, LANE, device=kind.device, dtype=torch.long)
    positions[blocks.flatten().long()] = stand.view(-1, LANE)
    own = DecodeKV(lanes[0], lanes[1], positions, blocks=blocks, reach=width)
    found = attend_parts(kind, asked, store, own)
    for sinks in (None, drawn(kind.heads * kind.groups)):
        expected = attend_copied(asked, store, own, kind.locality, Scoring(kind.scale, kind.softcap, sinks)).float()
        yield float((merge_parts(kind, *found, sinks) - expected).abs().max() / expected.abs().max())


def _by_kernel(
    kind: PagedKind,
    asked: TokenQueries,
    store: PagedKV,
    lanes: DecodeKV,
    locality: Locality,
    scoring: Scoring,
) -> Tensor:
    return merge_parts(kind, *attend_parts(kind, asked, store, lanes), scoring.sinks)


TRIAL = Trial(
    name="Triton's kernel",
    without="read copies of their contexts",
    kernel=_by_kernel,
    dense=attend_copied,
    gaps=_gaps,
)
