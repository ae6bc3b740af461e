"""What guesses of secrets prove: exact tests against chance, bits with intervals, and equivalence to the text alone.
Independent of attacks, encodings and verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentcho.audit.measurement import Interval
from agentcho.lab.stats import resampled

MARGIN = 0.03
"""Two shares count as the same if they are shown to be nearer than this."""
RARE = 10
"""With fewer differing samples than this, a t-test alone is not trusted."""


def above_chance(count: int, total: int, chance: float) -> float:
    """The exact probability of at least `count` of `total` by chance (binomial, one-sided)."""
    from scipy.stats import binomtest

    return 1.0 if total == 0 else float(binomtest(count, total, min(chance, 1.0), "greater").pvalue)


class Bits(NamedTuple):
    """The recovered bits of a secret: its entropy minus its remaining cost, floored at 0."""

    middle: float
    interval: Interval


def recovered(logq: Sequence[float], entropy: float, seed: int) -> Bits:
    """The recovered bits of secrets of this entropy, from the base-2 logarithm of the probability given to each. What
    is left is the cross-entropy, so that this is at most the mutual information on average (Barber and Agakov, 2003).
    The interval is bootstrapped over secrets."""
    gains = [entropy + each for each in logq]
    found = resampled(gains, seed)
    low, high = (max(0.0, end) for end in (found.low, found.high))
    return Bits(max(0.0, float(np.mean(gains))), Interval(low=low, high=high, method=f"{found.method}, floored at 0"))


class Equivalence(NamedTuple):
    """`difference`: the mean of these minus those. `p`: that they are `MARGIN` or more apart. `method`: the test."""

    difference: float
    p: float
    method: str


def equivalent(these: Sequence[float], those: Sequence[float], margin: float = MARGIN) -> Equivalence:
    """Two one-sided tests (Schuirmann, 1987) on pairs, each value in [0, 1].

    Uses t-tests. If fewer than `RARE` pairs differ, they underestimate the spread, and p is at least that of an exact
    bound: if the difference were the margin, at least that share of all pairs would differ.
    """
    apart = np.asarray(these, np.float64) - np.asarray(those, np.float64)
    differing = int((apart != 0).sum())
    p, method = _by_t(apart, margin), "paired t"
    if differing < RARE:
        p, method = max(p, _exactly(apart, margin)), "paired t and exact"
    return Equivalence(float(apart.mean()) if len(apart) else 0.0, p, method)


def _by_t(apart: NDArray[np.float64], margin: float) -> float:
    from scipy.stats import ttest_1samp

    if len(apart) < 2:
        return 1.0
    if apart.std() == 0:
        return 0.0 if abs(apart[0]) < margin else 1.0
    high = ttest_1samp(apart, margin, alternative="less").pvalue
    low = ttest_1samp(apart, -margin, alternative="greater").pvalue
    return float(max(high, low))


def _exactly(apart: NDArray[np.float64], margin: float) -> float:
    """The exact bound: a mean of values up to 1 is at most the share of positive ones, and likewise for negative
    ones."""
    from scipy.stats import binom

    return float(max(binom.cdf(int((side > 0).sum()), len(apart), margin) for side in (apart, -apart)))


def more(these: Sequence[float], those: Sequence[float]) -> float:
    """The exact one-sided sign test on pairs: p that `these` exceed `those` this often by chance."""
    apart = np.asarray(these, np.float64) - np.asarray(those, np.float64)
    up, down = int((apart > 0).sum()), int((apart < 0).sum())
    return above_chance(up, up + down, 0.5)
