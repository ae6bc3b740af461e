"""The attention of one layer: the queries of a segment over the keys of its context and its own.

Only the keys that a segment may attend to are handed in. Masks express causality and locality (sliding windows and
chunks, by logical position) and nothing else. Does not know: where keys come from, rotations, the store.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

FEW = 64
"""Queries up to which reading the keys is most of the work."""


class Locality(NamedTuple):
    """Which keys a layer can see by logical position.

    "sliding": key > query - size. "chunked": key // size == query // size. Keys of a context may stand at
    later positions than the query; they are seen.
    """

    kind: Literal["full", "sliding", "chunked"] = "full"
    size: int = 0

    def visible(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Bool `[..., queries, keys]` for positions `[..., queries]` and `[..., keys]`; None: all are."""
        if self.kind == "full":
            return None
        q, k = queries.unsqueeze(-1), keys.unsqueeze(-2)
        return k > q - self.size if self.kind == "sliding" else k // self.size == q // self.size


class Scoring(NamedTuple):
    """How a layer turns queries and keys into weights: scale, `softcap` (gemma2), `sinks` `[heads]` (gpt_oss)."""

    scale: float
    softcap: float | None = None
    sinks: Tensor | None = None


class Tempered(NamedTuple):
    """Keys of rows that were encoded beside each other, `marks` `[rows, 1, 1, length]` bool, and how they are weighed
    `[rows, 1, 1, 1]`: see `Ape`."""

    marks: Tensor
    temperature: Tensor
    scale: Tensor

    def weigh(self, scores: Tensor) -> Tensor:
        """Scores `[rows, heads, n, length]` float32, minus infinity where nothing is seen, as the softmax over all keys
        takes them."""
        scores = torch.where(self.marks, scores / self.temperature, scores)
        total = scores.masked_fill(~self.marks, float("-inf")).logsumexp(-1, keepdim=True)
        more = ((self.scale - 1) * total).masked_fill(total.isneginf(), 0.0)
        return torch.where(self.marks, scores + more, scores)


def causal(queries: Tensor, keys: Tensor, own: int, locality: Locality) -> Tensor | None:
    """The mask `[own, keys]` of a segment whose `own` tokens are the last of `keys` (both are positions), True where
    seen: all keys of the context within the locality, and own keys up to the query's own token. None: nothing is
    hidden."""
    visible = locality.visible(queries, keys)
    if own == 1:
        return visible
    seen = torch.ones(own, len(keys), dtype=torch.bool, device=keys.device).tril(len(keys) - own)
    return seen if visible is None else seen & visible


def causal_at(queries: Tensor, keys: Tensor, places: Tensor, length: int, locality: Locality) -> Tensor:
    """The mask `[queries, keys]` for single tokens of a message of `length` tokens, whose keys are the last of `keys`.
    The token at each of `places` sees the context, and the message up to itself."""
    seen = torch.ones(len(places), len(keys), dtype=torch.bool, device=keys.device)
    own = torch.arange(length, device=keys.device)
    seen[:, len(keys) - length :] = own <= places.unsqueeze(1)
    visible = locality.visible(queries, keys)
    return seen if visible is None else seen & visible


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scoring: Scoring,
    tempered: Tempered | None = None,
) -> Tensor:
    """Weighted values `[rows, heads, n, value_dim]` for queries `[rows, heads, n, dim]` and keys and values
    `[rows, kv_heads, length, dim]`; `mask` is bool, broadcastable to `[rows, 1, n, length]`, True where seen.
    `tempered`: the keys that are not weighed as they are."""
    if scoring.softcap is not None or scoring.sinks is not None or tempered is not None:
        return _explicit(queries, keys, values, mask, scoring, tempered)
    heads, kv_heads, count = queries.shape[1], keys.shape[1], queries.shape[2]
    if heads != kv_heads and count <= FEW:
        # The queries of all heads that share keys are put into one sequence, so that keys are read once for all.
        groups = heads // kv_heads
        grouped = queries.reshape(len(queries), kv_heads, groups * count, queries.shape[3])
        several = mask if mask is None or count == 1 else mask.repeat(*[1] * (mask.dim() - 2), groups, 1)
        out = scaled_dot_product_attention(grouped, keys, values, attn_mask=several, scale=scoring.scale)
        return out.reshape(len(queries), heads, count, values.shape[3])
    return scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, scale=scoring.scale, enable_gqa=heads != kv_heads
    )


def close(dtype: torch.dtype) -> float:
    """How far values of a kernel may be from those of `attend`, as a share of the largest: both round in this type."""
    return 1e-3 if dtype == torch.float32 else 1 / 32


def is_plain(locality: Locality, scoring: Scoring) -> bool:
    """Whether every key is seen, and weighed by a plain softmax."""
    return locality.kind == "full" and scoring.softcap is None and scoring.sinks is None


def weighed(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    """`attend` by a plain softmax, and the logarithms of the sums of its weights `[rows, heads, n]`, float32. On a CPU
    only."""
    rows, heads, count, dim = queries.shape
    kv_heads = keys.shape[1]
    groups = heads // kv_heads
    grouped = queries.reshape(rows, kv_heads, groups * count, dim)
    if mask is not None:
        mask = torch.zeros_like(mask, dtype=queries.dtype).masked_fill_(~mask, float("-inf"))
        mask = mask.expand(rows, 1, count, keys.shape[2]).repeat(1, 1, groups, 1)
    out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        grouped, keys, values, 0.0, False, attn_mask=mask, scale=scale
    )
    return out.reshape(rows, heads, count, dim), sums.reshape(rows, heads, count).float()


def _explicit(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scoring: Scoring, tempered: Tempered | None
) -> Tensor:
    """`attend` by plain matrix products in float32, for layers whose weights are no plain softmax."""
    groups = queries.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
    scores = (queries @ keys.transpose(-1, -2)).float() * scoring.scale
    if scoring.softcap is not None:
        scores = torch.tanh(scores / scoring.softcap) * scoring.softcap
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if tempered is not None:
        scores = tempered.weigh(scores)
    if scoring.sinks is not None:
        sinks = scoring.sinks.float().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sinks], dim=-1)
    weights = scores.softmax(dim=-1)[..., : keys.shape[2]]
    return weights.to(values.dtype) @ values
