"""Attention of single tokens by torch's FlexAttention: each row reads the blocks of keys that it sees, and no others,
and several of a GPU's processors share a long row.

Its kernels are compiled for the device when they are first needed. Each kind is compared with plain attention then:
what cannot be compiled, or comes out otherwise, is left for that. Does not know: lanes, where keys come from.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention
from torch.nn.functional import pad

from agentcho.engine.attention import Scoring, attend

BLOCK = 128
"""Keys that are read or left together."""
CLOSE = 1 / 32
"""How far a kernel's values may be from plain attention's, as a share of the largest; both round in the same type."""
KERNELS = 64
"""Kernels of all kinds and numbers of rows that a process may compile."""


def has_kernels(device: torch.device) -> bool:
    """Whether FlexAttention compiles to kernels for it that are faster than plain attention."""
    return device.type == "cuda"


class Seen:
    """What rows see of their keys: `mask` is bool `[rows, 1, 1, length]`, at least one True a row."""

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    @cached_property
    def blocks(self) -> BlockMask:
        """The same for kernels: of each row, how many blocks it sees keys of, these first of all, and the mask."""
        seen = self.mask[:, 0]
        length = seen.shape[-1]
        visible = pad(seen, (0, -length % BLOCK)).reshape(len(seen), 1, -1, BLOCK).any(-1)
        number = visible.sum(-1, dtype=torch.int32)[:, None]
        order = visible.to(torch.int8).argsort(dim=-1, descending=True, stable=True).to(torch.int32)[:, None]
        for tensor in (seen, number, order):
            _fix_rows(tensor)
        return BlockMask.from_kv_blocks(
            number, order, BLOCK_SIZE=(BLOCK, BLOCK), seq_lengths=(1, length), compute_q_blocks=False,
            mask_mod=lambda row, head, query, key: seen[row, 0, key],
        )  # fmt: skip


def attend_blocks(queries: Tensor, keys: Tensor, values: Tensor, seen: Seen, scoring: Scoring) -> Tensor:
    """`attend` for one token a row: `[rows, heads, 1, value_dim]`. To be called with few numbers of rows: each has a
    kernel of its own."""
    shapes = (*queries.shape[1:], *keys.shape[1::2], values.shape[3])
    if not _works(_Kind(queries.device, queries.dtype, shapes, scoring.scale, scoring.softcap)):
        return attend(queries, keys, values, seen.mask, scoring)
    return _flexed(queries, keys, values, seen, scoring)


class _Kind(NamedTuple):
    """What one look decides for. `shapes` are heads, 1, dim, key heads, dim and value dim."""

    device: torch.device
    dtype: torch.dtype
    shapes: tuple[int, ...]
    scale: float
    softcap: float | None


def _flexed(queries: Tensor, keys: Tensor, values: Tensor, seen: Seen, scoring: Scoring) -> Tensor:
    for tensor in (queries, keys, values):
        _fix_rows(tensor)
    with torch._dynamo.config.patch(recompile_limit=KERNELS):
        out, sums = _kernel(scoring.scale, scoring.softcap)(queries, keys, values, seen.blocks)
    if scoring.sinks is None:
        return out
    share = torch.sigmoid(sums.float() - scoring.sinks.float()[None, :, None])
    return (out * share.unsqueeze(-1)).to(out.dtype)


def _fix_rows(tensor: Tensor) -> None:
    """A kernel for any number of rows would not share a row's keys out."""
    torch._dynamo.mark_static(tensor, 0)


@cache
def _kernel(scale: float, softcap: float | None) -> Callable[..., tuple[Tensor, Tensor]]:
    """Weighted values, and the logarithms of the sums of their weights `[rows, heads, 1]`."""

    def capped(score: Tensor, *places: Tensor) -> Tensor:
        assert softcap is not None
        return torch.tanh(score / softcap) * softcap

    score_mod = None if softcap is None else capped

    def kernel(queries: Tensor, keys: Tensor, values: Tensor, blocks: BlockMask) -> tuple[Tensor, Tensor]:
        out, more = flex_attention(
            queries, keys, values, score_mod=score_mod, block_mask=blocks, scale=scale, enable_gqa=True,
            return_aux=AuxRequest(lse=True),
        )  # fmt: skip
        assert more.lse is not None
        return out, more.lse

    return _compiled(kernel)


def _compiled(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(kernel)


@cache
def _works(kind: _Kind) -> bool:
    """Whether kernels of a kind can be had, and weigh as plain attention does; if not, a warning says why."""
    try:
        gap = max(_gap(kind, rows, length) for rows, length in ((1, BLOCK), (1, 4 * BLOCK), (4, 2 * BLOCK)))
    except Exception as error:
        why = str(error).strip().splitlines() or [type(error).__name__]
        warnings.warn(f"decode steps go without FlexAttention, and are slower: it fails here ({why[0]})", stacklevel=2)
        return False
    if not gap <= CLOSE:
        what = f"its values are off by {gap:.2g} of the largest"
        warnings.warn(f"decode steps go without FlexAttention, and are slower: {what}", stacklevel=2)
    return gap <= CLOSE


def _gap(kind: _Kind, rows: int, length: int) -> float:
    """How far the kernel is from plain attention, as a share of the largest value; not all keys are seen."""
    heads, _, dim, key_heads, _, value_dim = kind.shapes
    dice = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=dice).to(kind.device, kind.dtype)

    tensors = drawn(rows, heads, 1, dim), drawn(rows, key_heads, length, dim), drawn(rows, key_heads, length, value_dim)
    mask = torch.rand(rows, 1, 1, length, generator=dice) < 1 / 2
    mask[-1, ..., BLOCK // 2 :] = False
    mask[..., 0] = True
    seen, scoring = Seen(mask.to(kind.device)), Scoring(kind.scale, kind.softcap, drawn(heads))
    expected = attend(*tensors, seen.mask, scoring).float()
    return float((_flexed(*tensors, seen, scoring).float() - expected).abs().max() / expected.abs().max())
