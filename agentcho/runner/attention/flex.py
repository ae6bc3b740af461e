"""Attention of single tokens by torch's FlexAttention: each row reads only the blocks of keys that it sees, and several
GPU multiprocessors share a long row.

There is one kernel per number of rows, compiled on first use, because torch splits the keys of a row only if it knows
the number of rows. Kernels are tried first (see `trial`). Independent of where keys come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention
from torch.nn.functional import pad

from agentcho.runner.attention.base import Capabilities, DecodeRows, DecodeStep, Locality, Scoring, Setting
from agentcho.runner.attention.dense import Dense, SlotStep, attend
from agentcho.runner.attention.trial import Trial

BLOCK = 128
"""The number of keys that are read or skipped together."""
LOOKS = ((1, 1), (2, 2), (4, 8))
"""The numbers of blocks over which kernels are tried, and the capacity of the slot in blocks. One block of a longer
slot would be another kernel."""
_numbers = count()


class Flex(Dense):
    """Each row reads only the visible blocks of its copy of its context."""

    name = "flex"
    does = "FlexAttention reads the blocks that a row sees of a copy of its context"

    def capabilities(self, setting: Setting) -> Capabilities:
        """Only on CUDA: elsewhere FlexAttention is no faster than dense attention, as far as is known."""
        return Capabilities(why_not_flex(setting.device), several=False, padded=True, compiled=True)

    def refused(self, device: torch.device) -> str | None:
        """See `AttentionBackend.refused`."""
        return TRIAL.refused.get(device)

    def prepare_decode(self, rows: DecodeRows) -> DecodeStep:
        """See `AttentionBackend.prepare_decode`. A row whose bits must depend on itself only uses torch's own kernels,
        so that none is compiled in a step for the few such rows."""
        plainly = rows.pool.kind.alone or self.refused(rows.rows.device)
        return super().prepare_decode(rows) if plainly else _FlexDecode(rows)


class _FlexDecode(SlotStep):
    """Rows over the blocks of their slots."""

    def __init__(self, rows: DecodeRows) -> None:
        super().__init__(rows)
        self._blocks: dict[Locality, VisibleKeys] = {}

    def weigh(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `SlotStep.weigh`."""
        if locality not in self._blocks:
            self._blocks[locality] = VisibleKeys(self.masks[locality])
        return attend_blocks(queries, keys, values, seen=self._blocks[locality], scoring=scoring)


def why_not_flex(device: torch.device) -> str | None:
    """Why FlexAttention is not used on a device, or None if it is."""
    return None if device.type == "cuda" else f"FlexAttention is no faster on {device.type}"


class VisibleKeys:
    """The keys that rows see: `mask` is bool `[rows, 1, 1, length]`, with at least one True per row."""

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask
        self._blocks: dict[int, BlockMask] = {}

    def blocks(self, queries: int) -> BlockMask:
        """The mask in the form that kernels take, for `queries` queries per row: the number of blocks in which a row
        sees keys, the order of blocks with these first, and the mask."""
        if queries not in self._blocks:
            self._blocks[queries] = _blocks(self.mask[:, 0], queries)
        return self._blocks[queries]


def _blocks(seen: Tensor, queries: int) -> BlockMask:
    length = seen.shape[-1]
    visible = pad(seen, (0, -length % BLOCK)).reshape(len(seen), 1, -1, BLOCK).any(-1)
    number = visible.sum(-1, dtype=torch.int32)[:, None]
    order = visible.to(torch.int8).argsort(dim=-1, descending=True, stable=True).to(torch.int32)[:, None]
    return BlockMask.from_kv_blocks(
        number,
        order,
        BLOCK_SIZE=(BLOCK, BLOCK),
        seq_lengths=(queries, length),
        compute_q_blocks=False,
        mask_mod=lambda row, head, query, key: seen[row, 0, key],
    )


def attend_blocks(queries: Tensor, keys: Tensor, values: Tensor, seen: VisibleKeys, scoring: Scoring) -> Tensor:
    """`attend` for one token per row: `[rows, heads, 1, value_dim]`. Call it with few different numbers of rows."""
    rows, heads, _, dim = queries.shape
    shapes = rows, keys.shape[1], heads // keys.shape[1], dim, values.shape[3]
    kind = FlexKind(queries.device, queries.dtype, *shapes, scoring.scale, scoring.softcap)
    return TRIAL.run(kind, queries, keys, values, seen, scoring)


class FlexKind(NamedTuple):
    """Equal kinds share one kernel: `groups` query heads share each of the `heads` key heads."""

    device: torch.device
    dtype: torch.dtype
    rows: int
    heads: int
    groups: int
    dim: int
    value_dim: int
    scale: float
    softcap: float | None


def _flexed(
    kind: FlexKind, queries: Tensor, keys: Tensor, values: Tensor, seen: VisibleKeys, scoring: Scoring
) -> Tensor:
    """The query heads that share keys form one sequence: whatever their number, keys are read once."""
    grouped = queries.reshape(kind.rows, kind.heads, kind.groups, kind.dim)
    out, sums = _kernel(kind)(grouped, keys, values, seen.blocks(kind.groups))
    out = out.reshape(*queries.shape[:3], kind.value_dim)
    if scoring.sinks is None:
        return out
    share = torch.sigmoid(sums.float().reshape(queries.shape[:3]) - scoring.sinks.float()[None, :, None])
    return (out * share.unsqueeze(-1)).to(out.dtype)


@cache
def _kernel(kind: FlexKind) -> Callable[..., tuple[Tensor, Tensor]]:
    """Weighted values, and the logarithms of the sums of their weights `[rows, heads, groups]`. Each kernel has a
    unique name, because torch counts compilations, and what changed between calls, by it."""

    def capped(score: Tensor, *places: Tensor) -> Tensor:
        assert kind.softcap is not None
        return torch.tanh(score / kind.softcap) * kind.softcap

    score_mod, scale = None if kind.softcap is None else capped, kind.scale

    def kernel(queries: Tensor, keys: Tensor, values: Tensor, blocks: BlockMask) -> tuple[Tensor, Tensor]:
        out, more = flex_attention(
            queries, keys, values, score_mod=score_mod, block_mask=blocks, scale=scale, return_aux=AuxRequest(lse=True)
        )
        assert more.lse is not None
        return out, more.lse

    kernel.__code__ = kernel.__code__.replace(co_name=f"kernel_{next(_numbers)}")
    return _compiled(kernel)


def _compiled(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(kernel, fullgraph=True)


def _gaps(kind: FlexKind) -> Iterator[float]:
    """Over all of a slot's blocks and over some: torch compiles once for one block, once for the first number above
    one, and then for all numbers."""
    return (_gap(kind, *blocks) for blocks in LOOKS)


def _gap(kind: FlexKind, blocks: int, capacity: int) -> float:
    """The error of the kernel against dense attention, as a share of the largest value, over `blocks` blocks of slots
    that have room for `capacity` blocks. Some keys are masked; with several blocks the first row sees none of the first
    and third blocks, and the last row sees few keys."""
    dice, length = torch.Generator(kind.device).manual_seed(0), blocks * BLOCK

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=dice, device=kind.device, dtype=kind.dtype)

    with torch.inference_mode(False):  # as slots are created
        keys, values = (drawn(kind.rows, kind.heads, capacity * BLOCK, dim) for dim in (kind.dim, kind.value_dim))
    mask = torch.rand(kind.rows, 1, 1, length, generator=dice, device=kind.device) < 1 / 2
    if kind.rows > 1:
        mask[-1, ..., BLOCK // 2 :] = False
    if blocks > 1:
        mask[0, ..., :BLOCK] = mask[0, ..., 2 * BLOCK : 3 * BLOCK] = False
    mask[0, ..., -1] = mask[1:, ..., 0] = True
    seen, scoring = VisibleKeys(mask), Scoring(kind.scale, kind.softcap, drawn(kind.heads * kind.groups))
    tensors = drawn(kind.rows, kind.heads * kind.groups, 1, kind.dim), keys[:, :, :length], values[:, :, :length]
    expected = attend(*tensors, seen.mask, scoring).float()
    return float((_flexed(kind, *tensors, seen, scoring).float() - expected).abs().max() / expected.abs().max())


def _plain(queries: Tensor, keys: Tensor, values: Tensor, seen: VisibleKeys, scoring: Scoring) -> Tensor:
    return attend(queries, keys, values, mask=seen.mask, scoring=scoring)


TRIAL = Trial(
    name="FlexAttention",
    without="go without it",
    kernel=_flexed,
    dense=_plain,
    gaps=_gaps,
)
