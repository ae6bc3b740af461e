"""Measures the divergence of a column from the baseline on forced words: in the next-token distribution, and in the
likeliest token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentcho.config import ReusePolicy
from agentcho.games.runs.replay import Replayed, replay
from agentcho.lab.compare.comparison import Fidelity
from agentcho.lab.stats import Floats, clustered, distance, log_softmax, pooled_mean
from agentcho.protocol.call import EnginePort
from agentcho.records.trace import Workflow

Rows = NDArray[np.float32]


class Arm(NamedTuple):
    """A reuse policy, and the engine that runs it: the model's own, or one with an adapter."""

    reuse: ReusePolicy
    engine: EnginePort


class Apart(NamedTuple):
    """One game: KL(baseline || column) in nats of each row, and whether its likeliest token is the same."""

    kl: Floats
    same: NDArray[np.bool_]


def fidelity(
    workflows: Sequence[Workflow], arms: Mapping[str, Arm], engine: EnginePort, seed: int, tell: Callable[[int], None]
) -> dict[str, Fidelity]:
    """Measure each arm against the baseline of `engine`, on every decode of these games. Exact up to the arithmetic of
    two forwards: the baseline against itself, batched differently, shows the noise."""
    found: dict[str, list[Apart]] = {name: [] for name in arms}
    for number, workflow in enumerate(workflows, 1):
        before = rows(workflow, Arm(ReusePolicy("baseline", "audit"), engine))
        for name, arm in arms.items():
            found[name].append(apart(before, rows(workflow, arm)))
        tell(number)
    return {name: _summary(games, seed) for name, games in found.items()}


def rows(workflow: Workflow, arm: Arm) -> Rows:
    """The log-probabilities at every position of all decodes, concatenated: `[rows, vocab]`."""
    played = forced(workflow, arm, logits=True)
    return np.concatenate([log_softmax(np.asarray(said.logits, dtype=np.float32)) for said in played.values()])


def forced(workflow: Workflow, arm: Arm, logits: bool) -> Replayed:
    """Replay the workflow in one arm, with every text forced."""
    return replay(workflow, arm.engine, arm.reuse, logits=logits)


def apart(before: Rows, after: Rows) -> Apart:
    """The divergence and the agreement of each row."""
    return Apart(distance(before, after).kl, before.argmax(axis=1) == after.argmax(axis=1))


def _summary(games: Sequence[Apart], seed: int) -> Fidelity:
    kl = [game.kl for game in games]
    same = np.concatenate([game.same for game in games])
    mean, agree = pooled_mean(kl), float(same.mean())
    return Fidelity(games=len(games), rows=len(same), kl=mean, span=clustered(kl, seed), agree=agree)
