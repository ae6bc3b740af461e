"""Compares the words of two records of the same games, and checks that games part only at near-ties.

In the fast profile a row's last bits depend on the rest of its batch. That may change a token only where the choice was
close: two tokens were almost equally likely, or the coin fell next to the edge between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from agentcho.engine.generation import SamplingDraw
from agentcho.games.play.turn import coin_seed
from agentcho.games.runs.replay import replay
from agentcho.games.runs.run import game_seed
from agentcho.protocol.call import Sampling
from agentcho.records.record import SavedRun
from agentcho.records.transcript import TranscriptEntry
from agentcho.runner.sampling.sampler import MASK, _kept, _row_table, uniform

NEAR = 1e-3
"""A difference in logits or probability far above rounding errors and far below what a reader would call a choice."""


class Parting(NamedTuple):
    """Where two games part: at the `nth` sampled token of a message whose prompts had the same words."""

    game: int
    message: str
    nth: int
    tokens: tuple[int | None, int | None]


def sampled(entry: TranscriptEntry) -> tuple[int, ...]:
    start, stop = entry.message.sampled or (0, 0)
    return entry.message.tokens[start:stop]


def parting(game: int, one: Sequence[TranscriptEntry], other: Sequence[TranscriptEntry]) -> Parting | None:
    """Where the words of a game part; None: nowhere. AssertionError: they part before anything is sampled."""
    theirs, same = {entry.message.id: entry for entry in other}, set[str]()
    for entry in one:
        message = entry.message
        there = theirs.get(message.id)
        if not same.issuperset(message.parents) or (there is not None and there.message.parents != message.parents):
            continue
        if there is not None and there.message.tokens == message.tokens:
            same.add(message.id)
            continue
        assert message.kind == "decode", f"{message.id} was known, and differs"
        assert there is not None, f"{message.id} was said in one game alone"
        a, b = sampled(entry), sampled(there)
        nth = next(n for n in range(len(a) + len(b)) if a[n : n + 1] != b[n : n + 1])
        return Parting(game, message.id, nth, (next(iter(a[nth:]), None), next(iter(b[nth:]), None)))
    assert len(same) == len(one) == len(other), "what was read differs, and no words do"
    return None


def near(row: Tensor, sampling: Sampling, nth: int, tokens: tuple[int, int]) -> bool:
    """Whether the choice between these two tokens is close: each is chosen if its logit is slightly higher and the
    other's slightly lower, or if the coin is slightly to the side."""
    return all(_within_reach(row, sampling, nth, mine, other) for mine, other in (tokens, tokens[::-1]))


def _within_reach(row: Tensor, sampling: Sampling, nth: int, mine: int, other: int) -> bool:
    shifted = row.clone()
    shifted[mine] += NEAR
    shifted[other] -= NEAR
    return mine in {_chosen(each, sampling, nth, move) for each in (row, shifted) for move in (-NEAR, 0.0, NEAR)}


def _chosen(row: Tensor, sampling: Sampling, nth: int, move: float) -> int:
    if sampling.temperature == 0:
        return int(row.argmax())
    probs, order = (row / sampling.temperature).softmax(-1).sort(descending=True, stable=True)
    options = _row_table([SamplingDraw(sampling, nth)], None, probs.device)[:, :MASK]
    kept = torch.where(_kept(probs[None], options)[0], probs, 0.0).double()
    reach = kept.cumsum(-1)
    at = min(max(uniform(sampling.seed, nth) + move, 0.0), 1.0) * float(reach[-1])
    place = min(
        int(torch.searchsorted(reach, torch.tensor(at, dtype=reach.dtype), right=True)), int((kept > 0).sum()) - 1
    )
    return int(order[place])


def same_words(one: SavedRun, other: SavedRun, engine: Any) -> Mapping[int, Parting]:
    """The games whose words differ, except raced ones. AssertionError: one does not part at a near-tie."""
    ours, theirs = one.games(), other.games()
    raced = {game for run in (one, other) for game, over in run.finished().items() if over.raced}
    assert ours.keys() == theirs.keys()
    found = {
        game: apart
        for game, entries in ours.items()
        if game not in raced and (apart := parting(game, entries, theirs[game])) is not None
    }
    workflows = {int(trace.meta["game"]): trace for trace in one.export()}
    config = one.info.config
    for game, apart in found.items():
        entry = next(each for each in ours[game] if each.message.id == apart.message)
        before = [e for e in ours[game] if e.message.kind == "decode" and e.message.author == entry.message.author]
        seed = coin_seed(game_seed(config.seed, game), game, entry.message.author or "", before.index(entry))
        rows = replay(workflows[game], engine, mode=config.mode, leakage=config.leakage, deterministic=True)[
            apart.message
        ].logits
        end = engine.framing.closing("assistant")[0]
        a, b = (end if token is None else token for token in apart.tokens)
        row = _allowed(rows[apart.nth], entry, apart, engine)
        sampling = Sampling(**(config.sampling.model_dump() | {"seed": seed}))
        assert near(row, sampling, apart.nth, (a, b)), f"game {game} parts at {apart}, which is no near-tie"
    return found


def _allowed(row: Tensor, entry: TranscriptEntry, apart: Parting, engine: Any) -> Tensor:
    """The row under a constraint: for a choice, only tokens that continue one of the texts."""
    if not entry.act.choices:
        return row
    said = sampled(entry)[: apart.nth]
    choices = [tuple(engine.framing.content.encode(choice)) for choice in entry.act.choices]
    going = sorted({c[apart.nth] for c in choices if c[: apart.nth] == said and len(c) > apart.nth})
    masked = torch.full_like(row, float("-inf"))
    masked[going] = row[going]
    return masked
