"""Choosing tokens: all rows of a step at once, each by its own options and its own coin.

A row's choice depends on its logits, its options and its coin, never on the other rows. Does not know: what a
token means, when a message ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from agentcho.calls.call import Sampling
from agentcho.engine.coins import coin
from agentcho.engine.sequence import Draw

FEW = 256


def choose(logits: Tensor, draws: Sequence[Draw], banned: Tensor) -> list[int | None]:
    """One token a row of `logits` `[rows, vocab]`; None where a row has no token that can be drawn.

    `banned` is bool `[vocab]`: ids that no message may contain. `allowed` of a draw are the ids (int64) a
    constraint leaves it; they win over `banned`. Logits must be finite where allowed: a NaN fails its row.
    """
    scores = _constrained(logits, draws, banned)
    ok = ~torch.isnan(scores).any(-1) & torch.isfinite(scores.max(-1).values)
    scores = torch.where(ok.unsqueeze(1), scores, 0.0)
    greedy = scores.argmax(-1)
    if any(d.sampling.temperature > 0 for d in draws):
        hot = torch.tensor([d.sampling.temperature > 0 for d in draws], device=scores.device)
        greedy = torch.where(hot, _draw(scores, draws), greedy)
    return [token if good and token >= 0 else None for token, good in zip(greedy.tolist(), ok.tolist(), strict=True)]


def _constrained(logits: Tensor, draws: Sequence[Draw], banned: Tensor) -> Tensor:
    scores = logits.masked_fill(banned, float("-inf"))
    for row, draw in enumerate(draws):
        if draw.allowed is not None:
            scores[row] = float("-inf")
            scores[row, draw.allowed] = logits[row, draw.allowed]
    return scores


def _draw(scores: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Inverse transform sampling over the kept tokens, most likely first.

    Only rows whose kept tokens reach past the `FEW` likeliest are sorted whole; which those are depends on
    each row alone.
    """
    heat = _column([d.sampling.temperature or 1.0 for d in draws], scores)
    probs = (scores / heat).softmax(-1)
    few = probs.topk(min(FEW, probs.shape[-1]))
    tokens = _pick(few.values, few.indices, draws)
    rest = [row for row, mass in enumerate(few.values.sum(-1).tolist()) if not _covers(draws[row].sampling, mass)]
    if rest and probs.shape[-1] > FEW:
        whole = probs[rest].sort(dim=-1, descending=True, stable=True)
        tokens[rest] = _pick(whole.values, whole.indices, [draws[row] for row in rest])
    return tokens


def _covers(sampling: Sampling, mass: float) -> bool:
    """Whether the likeliest tokens, of that probability in all, hold every token that can be drawn."""
    return 0 < sampling.top_k <= FEW or mass > sampling.top_p


def _pick(probs: Tensor, order: Tensor, draws: Sequence[Draw]) -> Tensor:
    """One of the sorted tokens `order` a row, by its coin; -1 where none has a probability."""
    probs = torch.where(_kept(probs, [d.sampling for d in draws]), probs, 0.0).double()
    reach = probs.cumsum(-1)
    coins = _column([coin(d.sampling.seed, d.nth) for d in draws], reach) * reach[:, -1:]
    last = (probs > 0).sum(-1, keepdim=True) - 1
    place = torch.minimum(torch.searchsorted(reach, coins, right=True), last)
    return torch.where(last < 0, -1, order.gather(-1, place.clamp(min=0))).squeeze(-1)


def _kept(probs: Tensor, options: Sequence[Sampling]) -> Tensor:
    """Which of the sorted probabilities pass top_k, then top_p over what is left, then min_p."""
    rank = torch.arange(probs.shape[-1], device=probs.device)
    ranked = rank < _column([s.top_k or 1 << 40 for s in options], rank)
    left = torch.where(ranked, probs, 0.0)
    mass = torch.where(_column([s.top_k for s in options], rank) > 0, left.sum(-1, keepdim=True), 1.0)
    nucleus = _column([s.top_p if s.top_p < 1 else 2.0 for s in options], probs) * mass
    keep = ranked & (left.cumsum(-1) - left < nucleus)
    keep &= probs >= _column([s.min_p for s in options], probs) * probs[:, :1]
    keep[:, 0] = True
    return keep


def _column(values: list[float] | list[int], like: Tensor) -> Tensor:
    return torch.tensor(values, device=like.device, dtype=like.dtype).unsqueeze(1)
