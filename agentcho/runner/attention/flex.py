"""Attention of single tokens by torch's FlexAttention: each row reads only the blocks of keys that it sees, and several
processors of a GPU share a long row.

There are kernels for each number of rows, compiled when they are first needed, because torch divides the keys of a row
only where it knows how many rows there are. Their results are then compared with plain attention. A device where they
cannot be compiled, or give other results, goes on with plain attention. Does not know: slots, where keys come from.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention
from torch.nn.functional import pad

from agentcho.runner.attention.dense import Scoring, attend, close

BLOCK = 128
"""Keys that are read or left together."""
WIDTH = 2 * BLOCK
"""A multiple of this many tokens of a slot is handed over, or all of it."""
LOOKS = ((1, 1), (2, 2), (4, 8))
"""Over how many blocks kernels are tried, and for how many there is room. One block of a longer slot would be another
kernel."""
_refused = dict[torch.device, str]()
_numbers = count()


def has_kernels(device: torch.device) -> bool:
    """Whether FlexAttention has kernels for this device that are faster than plain attention, as far as is known."""
    return without(device) is None


def without(device: torch.device) -> str | None:
    """Why there are none; None: as far as is known there are."""
    if device.type != "cuda":
        return f"FlexAttention is no faster on {device.type}"
    return _refused.get(device)


def rounded(width: int, capacity: int) -> int:
    """How many tokens of slots with room for `capacity` are handed over, where `width` tokens are needed."""
    return min(capacity, -(-width // WIDTH) * WIDTH)


class Seen:
    """What rows see of their keys: `mask` is bool `[rows, 1, 1, length]`, at least one True a row."""

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask
        self._blocks: dict[int, BlockMask] = {}

    def blocks(self, queries: int) -> BlockMask:
        """The same in the form that kernels take, for so many queries a row: the number of blocks in which a row sees
        keys, the order of blocks with these first, and the mask."""
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


def attend_blocks(queries: Tensor, keys: Tensor, values: Tensor, seen: Seen, scoring: Scoring) -> Tensor:
    """`attend` for one token a row: `[rows, heads, 1, value_dim]`. To be called with few numbers of rows."""
    rows, heads, _, dim = queries.shape
    shapes = rows, keys.shape[1], heads // keys.shape[1], dim, values.shape[3]
    kind = _Kind(queries.device, queries.dtype, *shapes, scoring.scale, scoring.softcap)
    if kind.device not in _refused and _works(kind):
        try:
            return _flexed(kind, queries, keys, values, seen, scoring)
        except torch.OutOfMemoryError:  # not the fault of the kernel
            raise
        except Exception as error:
            _refuse(kind.device, _failed(error))
    return attend(queries, keys, values, seen.mask, scoring)


class _Kind(NamedTuple):
    """What has a kernel of its own: `groups` heads share each of the `heads` keys have."""

    device: torch.device
    dtype: torch.dtype
    rows: int
    heads: int
    groups: int
    dim: int
    value_dim: int
    scale: float
    softcap: float | None


def _flexed(kind: _Kind, queries: Tensor, keys: Tensor, values: Tensor, seen: Seen, scoring: Scoring) -> Tensor:
    """The heads that share keys stand one after another as one sequence: whatever their number, keys are read once."""
    grouped = queries.reshape(kind.rows, kind.heads, kind.groups, kind.dim)
    out, sums = _kernel(kind)(grouped, keys, values, seen.blocks(kind.groups))
    out = out.reshape(*queries.shape[:3], kind.value_dim)
    if scoring.sinks is None:
        return out
    share = torch.sigmoid(sums.float().reshape(queries.shape[:3]) - scoring.sinks.float()[None, :, None])
    return (out * share.unsqueeze(-1)).to(out.dtype)


@cache
def _kernel(kind: _Kind) -> Callable[..., tuple[Tensor, Tensor]]:
    """Weighted values, and the logarithms of the sums of their weights `[rows, heads, groups]`. Its name is its own,
    for torch counts by that what it compiled, and what changed between calls."""

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


@cache
def _works(kind: _Kind) -> bool:
    """Whether a kernel can be had, and weighs as plain attention does, over all of a slot's blocks or some: torch
    compiles for one block, for the first number beyond, and then for all."""
    try:
        gaps = [_gap(kind, *blocks) for blocks in LOOKS]
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        _refuse(kind.device, _failed(error))
        return False
    wrong = [gap for gap in gaps if not gap <= close(kind.dtype)]
    if wrong:
        _refuse(kind.device, f"its values are off by {wrong[0]:.2g} of the largest")
    return not wrong


def _refuse(device: torch.device, why: str) -> None:
    _refused[device] = f"FlexAttention: {why}"
    warnings.warn(f"decode steps go without FlexAttention, and are slower: {why}", stacklevel=3)


def _failed(error: Exception) -> str:
    return f"it fails here ({(str(error).strip() or type(error).__name__).splitlines()[0]})"


def _gap(kind: _Kind, blocks: int, capacity: int) -> float:
    """How far the kernel is from plain attention, as a share of the largest value, over so many blocks of slots that
    have room for `capacity`. Some keys are not seen; of several blocks the first row sees none of the first one or the
    third, and the last row few of all."""
    dice, length = torch.Generator(kind.device).manual_seed(0), blocks * BLOCK

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=dice, device=kind.device, dtype=kind.dtype)

    with torch.inference_mode(False):  # slots are made so too
        keys, values = (drawn(kind.rows, kind.heads, capacity * BLOCK, dim) for dim in (kind.dim, kind.value_dim))
    mask = torch.rand(kind.rows, 1, 1, length, generator=dice, device=kind.device) < 1 / 2
    if kind.rows > 1:
        mask[-1, ..., BLOCK // 2 :] = False
    if blocks > 1:
        mask[0, ..., :BLOCK] = mask[0, ..., 2 * BLOCK : 3 * BLOCK] = False
    mask[0, ..., -1] = mask[1:, ..., 0] = True
    seen, scoring = Seen(mask), Scoring(kind.scale, kind.softcap, drawn(kind.heads * kind.groups))
    tensors = drawn(kind.rows, kind.heads * kind.groups, 1, kind.dim), keys[:, :, :length], values[:, :, :length]
    expected = attend(*tensors, seen.mask, scoring).float()
    return float((_flexed(kind, *tensors, seen, scoring).float() - expected).abs().max() / expected.abs().max())
