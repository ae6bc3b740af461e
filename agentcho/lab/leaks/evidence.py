"""What guesses of secrets prove: exact tests against chance, bits with intervals, and equivalence with the text alone.

Does not know: attacks, encodings, verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentcho.audit.measurement import Interval
from agentcho.lab.stats import resampled

MARGIN = 0.03
"""Two shares that are surely nearer than this count as the same."""
RARE = 10
"""With fewer samples than this that differ, a t-test is not trusted alone."""


def above_chance(count: int, total: int, chance: float) -> float:
    """The exact probability of at least `count` of `total` by chance (binomial, one-sided)."""
    from scipy.stats import binomtest

    return 1.0 if total == 0 else float(binomtest(count, total, min(chance, 1.0), "greater").pvalue)


class Bits(NamedTuple):
    """Bits of a secret that are recovered: the entropy less what it still costs; neither is below 0."""

    middle: float
    interval: Interval


def recovered(logq: Sequence[float], entropy: float, seed: int) -> Bits:
    """Of secrets of this entropy, from the base-2 logarithm of the probability that each one was given. What is left is
    the cross-entropy, so that this is at most the mutual information on average (Barber and Agakov, 2003). The interval
    is bootstrapped over secrets."""
    gains = [entropy + each for each in logq]
    found = resampled(gains, seed).interval
    low, high = (max(0.0, end) for end in (found.low, found.high))
    return Bits(max(0.0, float(np.mean(gains))), Interval(low=low, high=high, method=f"{found.method}, floored at 0"))


class Equivalence(NamedTuple):
    """`difference`: the mean of these less those. `p`: of their being `MARGIN` apart or more. `method`: which test."""

    difference: float
    p: float
    method: str


def equivalent(these: Sequence[float], those: Sequence[float], margin: float = MARGIN) -> Equivalence:
    """Two one-sided tests (Schuirmann, 1987) on pairs, each value in [0, 1].

    By t-tests. Where fewer than `RARE` pairs differ these know too little of the spread, and p is at least that of an
    exact bound: were the difference the margin, then a share of the margin of all pairs or more would differ.
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
    """A mean of values up to 1 is at most the share of positive ones; so of negative ones."""
    from scipy.stats import binom

    return float(max(binom.cdf(int((side > 0).sum()), len(apart), margin) for side in (apart, -apart)))


def more(these: Sequence[float], those: Sequence[float]) -> float:
    """The exact one-sided sign test on pairs: p of these being more than those as often by chance."""
    apart = np.asarray(these, np.float64) - np.asarray(those, np.float64)
    up, down = int((apart > 0).sum()), int((apart < 0).sum())
    return above_chance(up, up + down, 0.5)
