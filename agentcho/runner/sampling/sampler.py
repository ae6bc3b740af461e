"""Draws the tokens of all rows of a step at once, each by its own options and its own random number, and computes log
probabilities.

Random numbers are counter-based: they depend on a call's seed and a token's index, and there is no state (as in
Philox). The choice for a row depends on its logits, options and number, and never on other rows. All tokens of a row
are sorted only if the likeliest ones do not determine which one its number draws; only then does the host wait for the
device a second time. Independent of what a token means and of when a message ends.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor

from agentcho.engine.generation import SamplingDraw
from agentcho.protocol.call import Logprobs
from agentcho.runner.sampling.token_mask import Banned, RowMasks, row_masks

FEW = 256
BEYOND = -2
"""Stands for a token that the `FEW` likeliest do not determine."""
MOST = 3e38
"""The largest logit that penalties produce."""
MASK, HOT = 5, 6
"""Columns of the table of a step, after those of its options."""


def uniform(seed: int, index: int) -> float:
    """A random number in [0, 1) for token `index` of the call with this seed; the same on every machine."""
    digest = hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8, person=b"agentcho.coin").digest()
    return (int.from_bytes(digest) >> 11) / 2**53


def sample_tokens(logits: Tensor, draws: Sequence[SamplingDraw], banned: Banned) -> list[int | None]:
    """One token for each row of `logits` `[rows, vocab]`; None where a row has no token that can be drawn.

    The `allowed` ids of a draw, a `TokenMask` or integers, are those that its constraint permits; they override
    `banned`, and the `limits` of a text that has no constraint. Logits must be finite where allowed: a NaN fails its
    row.
    """
    hot, ruled = [draw.sampling.temperature > 0 for draw in draws], False
    for draw in draws:
        ruled = ruled or draw.allowed is not None or draw.limits is not None
    masks = row_masks(draws, banned) if ruled else None
    own = _all_bent(logits, draws)
    table = _row_table(draws, masks, logits.device) if any(hot) or masks is not None else None
    if masks is None or table is None:
        scores = own.masked_fill(banned.flags, float("-inf"))
    else:
        scores = torch.where(masks.on(_sent(masks.table, own.device), table[:, MASK].long()), own, float("-inf"))
    good = torch.isfinite(scores.max(-1).values)  # the maximum is NaN if any score is
    scores = torch.where(good.unsqueeze(1), scores, 0.0)
    if table is None or not any(hot):
        return _told(torch.where(good, scores.argmax(-1), -1).tolist())
    options = table[:, :MASK]
    probs = (scores / options[:, :1].to(scores.dtype)).softmax(-1)
    tokens = _draw(probs, options)
    if not all(hot):
        tokens = torch.where(table[:, HOT] > 0, tokens, scores.argmax(-1))
    found: list[int] = torch.where(good, tokens, -1).tolist()  # the only wait of the host in the common case
    if beyond := [row for row, token in enumerate(found) if token == BEYOND]:
        for row, token in zip(beyond, _whole(probs[beyond], options[beyond]), strict=True):
            found[row] = token
    return _told(found)


def _sent(values: Tensor, device: torch.device) -> Tensor:
    """A tensor in host memory, copied to a device. On CUDA Python does not wait for the copy: it is made from
    page-locked memory, which torch does not reuse before the copy is done."""
    if device.type != "cuda":
        return values.to(device)
    locked = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    return locked.copy_(values).to(device, non_blocking=True)


def _told(tokens: list[int]) -> list[int | None]:
    return [None if token == -1 else token for token in tokens]


def top_logprobs(logits: Tensor, asked: Sequence[tuple[int, int]]) -> list[Logprobs]:
    """For each row of `logits` `[rows, vocab]`, and a token and a number: the natural logarithms of the probabilities,
    computed in float32, of this token, and then of that number of the likeliest tokens, likeliest first."""
    logs = logits.float().log_softmax(-1)
    said = logs.gather(-1, _sent(torch.tensor([[token] for token, _ in asked]), logs.device))
    best = logs.topk(min(max(most for _, most in asked), logs.shape[-1]))
    copied = torch.cat([said.double(), best.values.double(), best.indices.double()], -1).tolist()  # one transfer
    found, width = list[Logprobs](), best.values.shape[-1]
    for (token, most), (own, *others) in zip(asked, copied, strict=True):
        pairs = zip(map(int, others[width:]), others[:width], strict=True)
        found.append(((token, own), *islice(pairs, most)))
    return found


def _all_bent(logits: Tensor, draws: Sequence[SamplingDraw]) -> Tensor:
    """Logits `[rows, vocab]`, with penalties and biases applied to the rows that have some."""
    bent = [row for row, draw in enumerate(draws) if draw.bent]
    found = logits.clone() if bent else logits
    for row in bent:
        found[row] = _bent(logits[row], draws[row])
    return found


def _bent(row: Tensor, draw: SamplingDraw) -> Tensor:
    """A row of logits `[vocab]` with its logit biases, and then the penalties of tokens in the prompt or the answer so
    far, in vLLM's order. Computed in float32; infinite results are clamped."""
    options, bent = draw.sampling, row.float().clone()
    if known := {token: bias for token, bias in options.logit_bias.items() if token < len(bent)}:
        bent[_sent(torch.tensor([*known]), bent.device)] += _sent(torch.tensor([*known.values()]), bent.device)
    if options.repetition_penalty != 1 and (seen := sorted(draw.prompt.union(draw.said))):
        ids = _sent(torch.tensor(seen), bent.device)
        found = bent[ids]
        by = options.repetition_penalty
        bent[ids] = torch.where(found > 0, found / by, found * by)
    if draw.said:
        counted = Counter(draw.said)
        ids = _sent(torch.tensor([*counted]), bent.device)
        counts = _sent(torch.tensor([*counted.values()]), bent.device)
        bent[ids] -= options.frequency_penalty * counts + options.presence_penalty
    return bent.clamp(-MOST, MOST).to(row.dtype)


def _row_table(draws: Sequence[SamplingDraw], masks: RowMasks | None, device: torch.device) -> Tensor:
    """`[rows, 7]`, float64: temperature (1 where greedy), top_k, top_p, min_p, and the random number of the token; then
    the index of the row's mask, and 1 where it is not greedy."""
    rows = list[tuple[float, ...]]()
    for row, draw in enumerate(draws):
        options = draw.sampling
        number = uniform(options.seed, draw.nth)
        told = (options.temperature or 1.0, options.top_k, options.top_p, options.min_p, number)
        rows.append((*told, 0 if masks is None else masks.rows[row], options.temperature > 0))
    return _sent(torch.tensor(rows, dtype=torch.float64), device)


def _draw(probs: Tensor, options: Tensor) -> Tensor:
    """Inverse transform sampling over the kept tokens, likeliest first: -1 where none can be drawn, `BEYOND` where the
    `FEW` likeliest do not determine the token. Whether they do depends on each row only."""
    few = probs.topk(min(FEW, probs.shape[-1]))
    tokens = _pick(few.values, few.indices, options)
    if probs.shape[-1] <= FEW:
        return tokens
    _, top_k, top_p, _, _ = options.unbind(1)
    ranked = (top_k > 0) & (top_k <= FEW)
    enough = ranked | ((top_k == 0) & (few.values.sum(-1).double() > top_p))  # a large top_k needs more than these
    return torch.where(enough, tokens, _among(probs, few.values, few.indices, options))


def _among(probs: Tensor, likeliest: Tensor, ids: Tensor, options: Tensor) -> Tensor:
    """For rows without top_k and top_p, whose kept tokens are known without their order: the token, if it is one of the
    likeliest and more likely than the last of them; else `BEYOND`. Equally likely tokens are in the order of their ids,
    as in `_whole`."""
    ids, by_id = ids.sort(-1)
    values, place = likeliest.gather(-1, by_id).sort(dim=-1, descending=True, stable=True)
    ids = ids.gather(-1, place)
    _, top_k, top_p, min_p, number = options.unbind(1)
    least = min_p.to(probs.dtype).unsqueeze(1) * values[:, :1]
    reach = torch.where(values >= least, values, 0.0).double().cumsum(-1)
    asked = number * torch.where(probs >= least, probs, 0.0).sum(-1, dtype=torch.float64)
    place = torch.searchsorted(reach, asked.unsqueeze(1), right=True).clamp(max=values.shape[-1] - 1)
    inside = (asked < reach[:, -1]) & (values.gather(-1, place).squeeze(-1) > values[:, -1])
    sure = inside & (top_k == 0) & (top_p >= 1)
    return torch.where(sure, ids.gather(-1, place).squeeze(-1), BEYOND)


def _whole(probs: Tensor, options: Tensor) -> list[int]:
    """Draw the tokens of rows that must be sorted completely."""
    whole = probs.sort(dim=-1, descending=True, stable=True)
    found: list[int] = _pick(whole.values, whole.indices, options).tolist()
    return found


def _pick(probs: Tensor, order: Tensor, options: Tensor) -> Tensor:
    """For each row one of the sorted tokens `order`, by its random number; -1 where no token has a probability."""
    probs = torch.where(_kept(probs, options), probs, 0.0).double()
    reach = probs.cumsum(-1)
    last = (probs > 0).sum(-1, keepdim=True) - 1
    place = torch.minimum(torch.searchsorted(reach, options[:, 4:] * reach[:, -1:], right=True), last)
    return torch.where(last < 0, -1, order.gather(-1, place.clamp(min=0))).squeeze(-1)


def _kept(probs: Tensor, options: Tensor) -> Tensor:
    """Which of the sorted probabilities pass top_k, then top_p among those left, then min_p."""
    _, top_k, top_p, min_p, _ = options.unsqueeze(-1).unbind(1)
    rank = torch.arange(probs.shape[-1], device=probs.device)
    ranked = (top_k == 0) | (rank < top_k)
    left = torch.where(ranked, probs, 0.0)
    mass = torch.where(top_k > 0, left.sum(-1, keepdim=True), 1.0)
    nucleus = torch.where(top_p < 1, top_p, 2.0).to(probs.dtype) * mass
    keep = ranked & (left.cumsum(-1) - left < nucleus)
    keep &= probs >= min_p.to(probs.dtype) * probs[:, :1]
    keep[:, 0] = True
    return keep
