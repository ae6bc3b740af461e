"""Dense attention in torch: every query over the keys that it is given, and the backend that uses it.

The backend serves rows that have a copy of their context. `attend` is the reference for all other kernels. Independent
of where keys come from, of rotations and of the store.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_flash_attention
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import _disable_current_modes

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
from agentcho.runner.kv.decode_kv import Reads
from agentcho.runner.kv.gather import Source
from agentcho.runner.reuse.kernels import weigher

FEW = 64
"""The number of queries up to which reading the keys is most of the work."""


class Dense(AttentionBackend):
    """torch's scaled dot product over copies of contexts; explicit products where weights are not a plain softmax."""

    name = "dense"
    does = "torch attends to a copy of each row's context"
    reads: ClassVar[Reads] = "copy"

    def capabilities(self, setting: Setting) -> Capabilities:
        """It supports everything, everywhere."""
        return Capabilities(tempered=True)

    def prepare_decode(self, rows: DecodeRows) -> DecodeStep:
        """See `AttentionBackend.prepare_decode`."""
        return _DenseDecode(rows)

    def prepare_prefill(self, segment: Segment, gathering: Gathering) -> PrefillStep:
        """See `AttentionBackend.prepare_prefill`."""
        return DensePrefill()


class DensePrefill(PrefillStep):
    """A segment over what was gathered for it."""

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
        return attend(queries, keys[None], values[None], mask, scoring=scoring, tempered=tempered)


class SlotStep(DecodeStep):
    """Rows of a pool over their slots, as one rectangle of queries: `count` rows of `most` tokens. Rows without a query
    get zeros, so that keys need no copy. `masks` has for each locality `[count, 1, most, width]`: bool, True where a
    key is seen; with `adding`, on a CPU, the additive mask, which torch would otherwise make in every layer."""

    adding: ClassVar[bool] = False

    def __init__(self, rows: DecodeRows) -> None:
        self.rows = rows
        self.masks: dict[Locality, Tensor] = {}

    @abstractmethod
    def weigh(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """Weighted values `[count, heads, most, value_dim]` for queries `[count, heads, most, dim]` over keys and
        values `[count, kv_heads, width, dim]`."""

    def decode(self, layer: int, queries: Tensor, locality: Locality, scoring: Scoring) -> Tensor:
        """See `DecodeStep.decode`."""
        rows = self.rows
        pool, count, width = rows.pool, rows.count, rows.width
        keys, values = pool.keys[layer][:count, :, :width], pool.values[layer][:count, :, :width]
        if locality not in self.masks:
            seen = self._visible(locality)
            self.masks[locality] = added(seen, keys.dtype) if self.adding and seen.device.type == "cpu" else seen
        if rows.whole:
            return self.weigh(layer, queries.unsqueeze(2), keys, values, locality=locality, scoring=scoring).squeeze(2)
        spread = queries.new_zeros(count, queries.shape[1], rows.most, queries.shape[2])
        spread[rows.rows, :, rows.nth] = queries
        out = self.weigh(layer, spread, keys, values, locality=locality, scoring=scoring)
        own: Tensor = out[rows.rows, :, rows.nth]
        return own

    def _visible(self, locality: Locality) -> Tensor:
        """The mask of a locality; an entry that is no query sees only the first, zero key of its slot."""
        rows = self.rows
        at, ends = rows.positions.unsqueeze(1), rows.ends.unsqueeze(1)
        if not rows.whole:
            at, ends = at.new_zeros(rows.count, rows.most), at.new_zeros(rows.count, rows.most)
            at[rows.rows, rows.nth], ends[rows.rows, rows.nth] = rows.positions, rows.ends
        places = torch.arange(rows.width, device=ends.device)
        mask: Tensor = places <= ends.unsqueeze(2)
        if locality.kind != "full":
            positions = rows.pool.positions[: rows.count, : rows.width].to(at.device)
            local = locality.visible(at, positions)
            assert local is not None
            mask = mask & (local | (places == ends.unsqueeze(2)))  # a token always sees itself
        return mask[:, None]


class _DenseDecode(SlotStep):
    """Rows over their slots by `attend`."""

    adding = True

    def __init__(self, rows: DecodeRows) -> None:
        super().__init__(rows)
        parallel = ((slot.index, slot.parallel) for slot in rows.slots)
        self._tempered = None if rows.plain else weigher(parallel, rows.count, rows.width, rows.rows.device)

    def weigh(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `SlotStep.weigh`."""
        return attend(queries, keys, values, self.masks[locality], scoring=scoring, tempered=self._tempered)


def causal(queries: Tensor, keys: Tensor, own: int, locality: Locality) -> Mask:
    """The mask `[own, keys]` of a segment whose `own` tokens are the last of `keys` (both are positions): all keys of
    the context within the locality are seen, and own keys up to the query's own token. None if nothing is hidden."""
    visible = None if locality.kind == "full" else locality.visible(queries, keys)
    if own == 1:
        return visible
    mask = CausalMask(own, len(keys), keys.device)
    return mask if visible is None else visible.tril(mask.keys - own)


def seen_by(mask: Mask) -> Tensor | None:
    """A mask as a bool tensor, True where a key is seen; None if nothing is hidden."""
    if not isinstance(mask, CausalMask):
        return mask
    if mask.seen is None:
        whole = torch.ones(mask.own, mask.keys, dtype=torch.bool, device=mask.device)
        mask.seen = whole.tril(mask.keys - mask.own)
    return mask.seen


def added(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """The additive form of a bool mask: 0 where a key is seen, else minus infinity."""
    return torch.zeros_like(seen, dtype=dtype).masked_fill_(~seen, float("-inf"))


def added_by(mask: CausalMask, dtype: torch.dtype, groups: int = 1) -> Tensor:
    """The additive mask for queries of `groups` heads, `[groups * own, keys]`. It is made once."""
    if groups not in mask.added:
        seen = seen_by(mask)
        assert seen is not None
        mask.added[groups] = added(seen, dtype).repeat(groups, 1)
    return mask.added[groups]


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
    mask: Mask,
    scoring: Scoring,
    tempered: Weigher | None = None,
) -> Tensor:
    """Weighted values `[rows, heads, n, value_dim]` for queries `[rows, heads, n, dim]` and keys and values `[rows,
    kv_heads, length, dim]`; `mask` is bool, broadcastable to `[rows, 1, n, length]`, True where seen, or on a CPU what
    `added` makes of that. `tempered`: weighs the keys of a reuse method.

    On CUDA, kernels that support causality get no mask for it, and grouped heads are never combined with a mask, for
    which torch has no fused kernel. On a CPU a mask costs nothing beside the products.
    """
    if scoring.softcap is not None or scoring.sinks is not None or tempered is not None:
        return _explicit(queries, keys, values, seen_by(mask), scoring, tempered)
    cuda = queries.device.type == "cuda"
    if cuda and isinstance(mask, CausalMask):
        return _causal(queries, keys, values, mask=mask, scale=scoring.scale)
    heads, kv_heads, count = queries.shape[1], keys.shape[1], queries.shape[2]
    if heads != kv_heads and (count <= FEW or (cuda and mask is not None)):
        # The queries of all heads that share keys form one sequence, so that keys are read once for all.
        groups = heads // kv_heads
        grouped = queries.reshape(len(queries), kv_heads, groups * count, queries.shape[3])
        if isinstance(mask, CausalMask):
            mask = added_by(mask, queries.dtype, groups)
        elif mask is not None and count > 1:
            mask = mask.repeat(*[1] * (mask.dim() - 2), groups, 1)
        out = scaled_dot_product_attention(grouped, keys, values, attn_mask=mask, scale=scoring.scale)
        return out.reshape(len(queries), heads, count, values.shape[3])
    if isinstance(mask, CausalMask):
        mask = added_by(mask, queries.dtype)
    return scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, scale=scoring.scale, enable_gqa=heads != kv_heads
    )


def _causal(queries: Tensor, keys: Tensor, values: Tensor, mask: CausalMask, scale: float) -> Tensor:
    """`attend` with causality only, on CUDA. Where heads share keys and flash attention cannot be used (in float32, for
    example), keys and values are repeated: no other fused kernel takes grouped heads."""
    groups = queries.shape[1] // keys.shape[1]
    if groups > 1 and not _can_flash(queries, keys, values):
        keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
        groups = 1
    if mask.own == mask.keys:
        return scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=scale, enable_gqa=groups > 1)
    return scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=_lower_right(mask.own, mask.keys),
        scale=scale,
        enable_gqa=groups > 1,
    )


def _lower_right(own: int, keys: int) -> Tensor:
    """The mask of `own` queries that are the last of `keys` positions, in the form that flash attention takes, without
    a tensor."""
    from torch.nn.attention.bias import causal_lower_right  # imports torch's compiler, which takes seconds

    with _disable_current_modes():  # it cannot be made inside a dispatch mode
        return causal_lower_right(own, keys)


def _can_flash(queries: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Whether flash attention takes these with grouped heads."""
    given: Any = queries, keys, values, None, 0.0, False, True  # positional: no mask, no dropout, not causal, grouped
    return can_use_flash_attention(SDPAParams(*given))


def attend_with_logsumexp(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """`attend` with a plain softmax, and the logarithms of the sums of its weights `[rows, heads, n]`, float32. On a
    CPU only. `mask`: an additive mask, broadcastable to `[rows, 1, n, length]`."""
    rows, heads, count, dim = queries.shape
    kv_heads = keys.shape[1]
    groups = heads // kv_heads
    grouped = queries.reshape(rows, kv_heads, groups * count, dim)
    if mask is not None:
        mask = mask.expand(rows, 1, count, keys.shape[2]).repeat(1, 1, groups, 1)
    out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        grouped, keys, values, 0.0, False, attn_mask=mask, scale=scale
    )
    return out.reshape(rows, heads, count, dim), sums.reshape(rows, heads, count).float()


def _explicit(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scoring: Scoring, tempered: Weigher | None
) -> Tensor:
    """`attend` by explicit matrix products in float32, for layers whose weights are not a plain softmax."""
    groups = queries.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
    scores = (queries @ keys.transpose(-1, -2)).float() * scoring.scale
    if scoring.softcap is not None:
        scores = torch.tanh(scores / scoring.softcap) * scoring.softcap
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    if tempered is not None:
        scores = tempered.weigh(scores)
    if scoring.sinks is not None:
        sinks = scoring.sinks.float().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sinks], dim=-1)
    weights = scores.softmax(dim=-1)[..., : keys.shape[2]]
    return weights.to(values.dtype) @ values
