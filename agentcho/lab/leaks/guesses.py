"""The guesses of an attack for each tested secret, and the conversion of scores to probabilities.

Scores are scaled by one number, selected on secrets that are neither trained on nor tested, down to 0 ("knows
nothing"): an attack that is sure and wrong would prove less than it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentcho.lab.leaks.scene import Scene
from agentcho.lab.leaks.secrets import Split, Symbols
from agentcho.lab.leaks.seen import Seen
from agentcho.lab.leaks.ways import Way
from agentcho.lab.measure.play import Ids, Play

Scores = NDArray[np.float64]
SHARPNESS = (0.0, *np.geomspace(0.01, 1000, 41).tolist())
"""The factors by which scores may be scaled before they become probabilities; 0 makes all options equally likely."""


class Guess(NamedTuple):
    """The guesses for the tested secrets: `symbols` `[tests, slots]`, and `logq` `[tests]`, the base-2 logarithm of the
    probability that the attack gave the true secret. `entropy`: of the secret to an adversary who knows all but the
    encoding, in bits; `chance`: of guessing it then. `where`: the selected layer, template or the like.
    `symbols_chance`: of guessing one symbol, for an attack that guesses all of them at once; None: each is guessed by
    itself, among its options."""

    symbols: Symbols
    logq: Scores
    entropy: float
    chance: float
    where: str
    symbols_chance: float | None = None


@dataclass(frozen=True)
class Effort:
    """The effort of attacks. `candidates`: the number of secrets for which a search encodes the sentence. `templates`:
    the number of questions put to the model, of which the best one on `asked` secrets is kept."""

    candidates: int = 2048
    templates: int = 20
    asked: int = 64


@dataclass(frozen=True)
class Case:
    """The input of one attack: the secrets and their split, and what is `seen` through one reading mode. `said`: the
    sentence with each secret, if it is not always the same. `told` is called for each piece of work."""

    engine: Any
    scene: Scene
    way: Way
    symbols: Symbols
    split: Split
    seen: Seen
    seed: int
    said: Sequence[Ids] | None = None
    effort: Effort = Effort()
    told: Callable[[str], None] = lambda what: None

    @property
    def unseen(self) -> int:
        """The number of possible secrets to an adversary who knows those that were trained and selected on."""
        return self.scene.kind.size - len(self.split.train) - len(self.split.check)

    def of(self, part: NDArray[np.int64]) -> Symbols:
        """The secrets of a part."""
        return self.symbols[part]

    def plays(self, part: NDArray[np.int64]) -> list[Play]:
        """The scene with the secrets of a part."""
        said = None if self.said is None else [self.said[number] for number in part]
        return self.scene.plays(self.symbols[part], said)

    def guess(self, symbols: Symbols, logq: Scores, where: str) -> Guess:
        """The guess of an attack that was trained on other secrets of the kind."""
        return Guess(symbols=symbols, logq=logq, entropy=log2(self.unseen), chance=1 / self.unseen, where=where)


def log_probabilities(scores: Scores, sharpness: float, doubt: float) -> Scores:
    """Scores `[rows, options]` as natural log-probabilities; a share of `doubt` is spread evenly."""
    raised = scores * sharpness
    raised = np.exp(raised - raised.max(axis=1, keepdims=True))
    sure = raised / raised.sum(axis=1, keepdims=True)
    found: Scores = np.log((1 - doubt) * sure + doubt / scores.shape[1])
    return found


def doubt(checked: int) -> float:
    """The assumed error rate of an attack that is right on all checked secrets: one in one more of them."""
    return 1 / (checked + 1)


class Sharpened(NamedTuple):
    """The best sharpness, its doubt, and the cost of a secret in bits with both."""

    sharpness: float
    doubt: float
    bits: float


def sharpened(scores: Sequence[Scores], truth: Symbols) -> Sharpened:
    """One sharpness for all slots, selected by the cross-entropy of these secrets."""
    rows, left = np.arange(len(truth)), doubt(len(truth))
    costs = [
        -sum(float(log_probabilities(each, s, left)[rows, truth[:, slot]].mean()) for slot, each in enumerate(scores))
        for s in SHARPNESS
    ]
    best = int(np.argmin(costs))
    return Sharpened(SHARPNESS[best], left, float(costs[best] / np.log(2)))


def answered(case: Case, scores: Sequence[Scores], sharp: Sharpened, where: str) -> Guess:
    """The guess from scores by slot, `[tests, options]` each; symbols are guessed independently."""
    truth, logq = case.of(case.split.test), np.zeros(len(case.split.test))
    for slot, each in enumerate(scores):
        told = log_probabilities(each, sharp.sharpness, sharp.doubt)
        logq += told[np.arange(len(truth)), truth[:, slot]] / np.log(2)
    return case.guess(np.stack([each.argmax(axis=1) for each in scores], axis=1), logq, where)


def one_hot(case: Case, symbols: Symbols) -> Scores:
    """One row per secret, with the one-hot vectors of all slots concatenated."""
    return np.concatenate([np.eye(case.scene.kind.options)[column] for column in symbols.T], axis=1)


def by_slot(case: Case, scores: Scores) -> list[Scores]:
    """Split concatenated scores by slot."""
    return list(np.split(scores.astype(np.float64), len(case.scene.kind.slots), axis=1))


def layers(case: Case) -> Iterator[tuple[str, list[int]]]:
    """The layers that probes look at: each one alone, and all together."""
    for place, layer in enumerate(case.seen.layers):
        yield f"layer {layer}", [place]
    yield "all layers", list(range(len(case.seen.layers)))
