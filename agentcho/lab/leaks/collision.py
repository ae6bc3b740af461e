"""Collision search: encodes the sentence with each possible secret; the nearest encoding wins.

The adversary has the model, and knows all of Alice's prompt except the secret. arXiv 2508.09442 searches like this
token by token; this searches by whole secrets. It needs no training.
"""

from __future__ import annotations

from math import log2

import numpy as np

from agentcho.lab.leaks.guesses import SHARPNESS, Case, Guess, Scores, doubt, log_probabilities
from agentcho.lab.leaks.secrets import Symbols, drawn
from agentcho.lab.leaks.seen import Floats, pooled, vectors

SHARPER = 1000.0
"""The factor by which a search can be sharper than a learned attack."""


def collision(case: Case) -> Guess | str:
    """Search among `Effort.candidates` secrets, including the tested ones. Returns a text if it cannot be done."""
    if case.said is not None:
        return "each sentence is another one: it would be encoded once for every secret and sentence"
    asked = np.concatenate([case.split.check, case.split.test])
    count = min(max(case.effort.candidates, len(asked)), case.scene.kind.size)
    pool = drawn(case.scene.kind, count, case.seed + 1, case.symbols[asked])
    order = np.random.default_rng((case.seed, 2)).permutation(len(pool))
    held = _candidates(case, pool[order])
    places = np.empty(len(pool), np.int64)
    places[order] = np.arange(len(pool))
    observed = np.stack([_row(case.seen.vectors[number]) for number in asked])
    scores = -_far(observed, held)
    own = places[: len(asked)]
    checked = len(case.split.check)
    sharpness = _sharpness(scores[:checked], own[:checked])
    logq = _logq(scores[checked:], own[checked:], sharpness, doubt(checked)) / np.log(2)
    nearest = _nearest(scores[checked:], np.random.default_rng((case.seed, 3)))
    return Guess(
        symbols=pool[order][nearest],
        logq=logq,
        entropy=log2(count),
        chance=1 / count,
        where=f"{count:,} candidates",
        symbols_chance=1 / count + (1 - 1 / count) / case.scene.kind.options,
    )


def _candidates(case: Case, pool: Symbols) -> Floats:
    found = []
    for each in vectors(case.engine, case.scene.plays(pool), case.scene.before, case.way):
        found.append(_row(each))
        case.told("collision search, candidates")
    return np.stack(found)


def _row(vectors: Floats) -> Floats:
    """Mean, first and last token of every layer `[layers, tokens, width]`; equal encodings have equal rows."""
    return pooled(vectors, np.full(len(vectors), vectors.shape[1])).reshape(-1)


def _far(observed: Floats, held: Floats) -> Scores:
    """Distances `[observed, candidates]`, relative to the median one; exactly 0 between equal encodings."""
    from scipy.spatial.distance import cdist

    found: Scores = cdist(observed.astype(np.float64), held.astype(np.float64))
    middle = float(np.median(found))
    return found / middle if middle > 0 else found


def _nearest(scores: Scores, rng: np.random.Generator) -> Symbols:
    """The best candidate for each; ties are broken with `rng`."""
    best = scores == scores.max(axis=1, keepdims=True)
    found: Symbols = (best * rng.random(scores.shape)).argmax(axis=1)
    return found


def _logq(scores: Scores, own: Symbols, sharpness: float, left: float) -> Scores:
    found: Scores = log_probabilities(scores, sharpness * SHARPER, left)[np.arange(len(own)), own]
    return found


def _sharpness(scores: Scores, own: Symbols) -> float:
    costs = [-float(_logq(scores, own, each, doubt(len(own))).mean()) for each in SHARPNESS]
    return float(SHARPNESS[int(np.argmin(costs))])
