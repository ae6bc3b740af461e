"""The statistics of measurements: distances of distributions, exact tests and intervals, correction for many pairs.

Everything is exact or seeded: the same numbers in give the same numbers out. Does not know: what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, bootstrap

Rows = NDArray[Any]
"""Log-probabilities `[rows, vocab]`, in nats."""
Floats = NDArray[np.float64]


class Bounds(NamedTuple):
    """A two-sided interval, and how it was found."""

    low: float
    high: float
    method: str


class Distance(NamedTuple):
    """Of each pair of rows: total variation in [0, 1] and Kullback-Leibler divergence in nats, both `[rows]`."""

    tv: Floats
    kl: Floats


def distance(before: Rows, after: Rows) -> Distance:
    """How far each row of `after` is from the row of `before` in its place; the divergence is of `before` from it.

    Computed in float64. A total variation is exactly 0 where, and only where, two rows are equal; what rounding
    would hide is the smallest positive number instead. ValueError: other shapes, or rows that hold NaN.
    """
    if before.shape != after.shape or before.ndim != 2:
        raise ValueError(f"rows of one shape are compared, not {before.shape} with {after.shape}")
    if np.isnan(before).any() or np.isnan(after).any():
        raise ValueError("a log-probability is not a number")
    logs, others = before.astype(np.float64), after.astype(np.float64)
    same = np.all(before == after, axis=1)
    p, q = np.exp(logs), np.exp(others)
    tv = np.minimum(np.abs(p - q).sum(axis=1) / 2, 1.0)
    kl = np.where(p > 0, p * _difference(logs, others), 0.0).sum(axis=1)
    tiny = np.finfo(np.float64).tiny
    return Distance(np.where(same, 0.0, np.maximum(tv, tiny)), np.where(same, 0.0, np.maximum(kl, 0.0)))


def _difference(logs: Floats, others: Floats) -> Floats:
    """`logs` less `others`, with 0 where both are minus infinity."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(logs - others, nan=0.0, posinf=np.inf, neginf=-np.inf)


def mcnemar(gained: int, lost: int) -> float:
    """Exact two-sided McNemar: how likely it is that pairs which changed at all went so one-sidedly by chance."""
    changed = gained + lost
    return 1.0 if changed == 0 else float(binomtest(gained, changed, 0.5).pvalue)


def clopper_pearson(count: int, total: int, level: float = 0.95) -> Bounds:
    """The exact interval of a share; all of [0, 1] where nothing was counted."""
    if total == 0:
        return Bounds(0.0, 1.0, "clopper-pearson")
    interval = binomtest(count, total).proportion_ci(level, method="exact")
    return Bounds(float(interval.low), float(interval.high), "clopper-pearson")


def holm(values: Sequence[float]) -> tuple[float, ...]:
    """p-values adjusted by Holm's step-down method, in the order given: it bounds the chance of any false one."""
    adjusted, worst = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=lambda place: values[place])):
        worst = max(worst, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = worst
    return tuple(adjusted)


def pooled_mean(games: Sequence[Floats]) -> float:
    """The mean over all rows of all games; 0 where there are none."""
    rows = sum(len(game) for game in games)
    return float(sum(game.sum() for game in games) / rows) if rows else 0.0


def clustered(games: Sequence[Floats], seed: int, level: float = 0.95, resamples: int = 1999) -> Bounds:
    """The percentile bootstrap interval of `pooled_mean`: whole games are drawn, never single rows, for the rows
    of one game depend on each other. With fewer than two games there is no interval but the mean itself."""
    sums = np.array([game.sum() for game in games if len(game)])
    counts = np.array([float(len(game)) for game in games if len(game)])
    if len(sums) < 2:
        mean = pooled_mean(games)
        return Bounds(mean, mean, "one game: no interval")
    found = bootstrap(
        (sums, counts), _ratio, paired=True, vectorized=True, confidence_level=level, n_resamples=resamples,
        method="percentile", rng=np.random.default_rng(seed),
    ).confidence_interval  # fmt: skip
    low, high = sorted((float(found.low), float(found.high)))  # equal ones may be swapped by rounding
    return Bounds(low, high, "bootstrap clustered by game")


class Resampled(NamedTuple):
    """The bootstrap of a mean: its percentile interval, and a two-sided p of a mean of 0."""

    bounds: Bounds
    p: float


def resampled(values: Sequence[float], seed: int, level: float = 0.95, resamples: int = 9999) -> Resampled:
    """The bootstrap of the mean of independent values, such as differences within pairs. p is twice the smaller share
    of resamples on either side of 0, at least 1 in `resamples`; without two values there is neither interval nor p."""
    found = np.asarray(values, dtype=np.float64)
    if len(found) < 2:
        mean = float(found.mean()) if len(found) else 0.0
        return Resampled(Bounds(mean, mean, "fewer than two: no interval"), 1.0)
    drawn = bootstrap(
        (found,), np.mean, vectorized=True, confidence_level=level, n_resamples=resamples, method="percentile",
        rng=np.random.default_rng(seed),
    )  # fmt: skip
    low, high = sorted((float(drawn.confidence_interval.low), float(drawn.confidence_interval.high)))
    means = drawn.bootstrap_distribution
    p = 2 * min(float((means <= 0).mean()), float((means >= 0).mean()))
    return Resampled(Bounds(low, high, "paired bootstrap"), min(1.0, max(p, 1 / resamples)))


def _ratio(sums: Floats, counts: Floats, axis: int = -1) -> Any:
    return sums.sum(axis=axis) / counts.sum(axis=axis)


def proven_bits(accuracy: float, classes: int) -> float:
    """The mutual information, in bits, that a guess of one of `classes` equally frequent ones with this accuracy
    proves at least (Fano's inequality); 0 at chance and below."""
    if classes < 2 or accuracy <= 1 / classes:
        return 0.0
    error = min(max(1 - accuracy, 0.0), 1.0)
    doubt = sum(-share * log2(share) for share in (error, 1 - error) if share > 0)
    return max(0.0, log2(classes) - doubt - error * log2(classes - 1))
