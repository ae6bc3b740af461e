"""The statistics of measurements: distances between distributions, exact tests and intervals, correction for
multiple comparisons, medians of repeats.

Everything is exact or seeded: equal inputs give equal results. Independent of what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentcho.audit.measurement import Interval
from agentcho.extras import require
from agentcho.records.frozen import Frozen

FLIPS = 9999
"""The number of draws of `sign_flips`."""
Rows = NDArray[Any]
"""Log-probabilities `[rows, vocab]`, in nats."""
Floats = NDArray[np.float64]


class Distance(NamedTuple):
    """For each pair of rows, total variation in [0, 1] and Kullback-Leibler divergence in nats, both `[rows]`."""

    tv: Floats
    kl: Floats


def distance(before: Rows, after: Rows) -> Distance:
    """The distance of each row of `after` from the same row of `before`; the divergence is KL(before || after).

    Computed in float64. A total variation is exactly 0 if and only if the two rows are equal; a difference that
    rounding would hide becomes the smallest positive number. ValueError: the shapes differ, or a row holds NaN.
    """
    if before.shape != after.shape or before.ndim != 2:
        raise ValueError(f"rows must have one shape, got {before.shape} and {after.shape}")
    if np.isnan(before).any() or np.isnan(after).any():
        raise ValueError("a log-probability is NaN")
    logs, others = before.astype(np.float64), after.astype(np.float64)
    same = np.all(before == after, axis=1)
    p, q = np.exp(logs), np.exp(others)
    tv = np.minimum(np.abs(p - q).sum(axis=1) / 2, 1.0)
    kl = np.where(p > 0, p * _difference(logs, others), 0.0).sum(axis=1)
    tiny = np.finfo(np.float64).tiny
    return Distance(np.where(same, 0.0, np.maximum(tv, tiny)), np.where(same, 0.0, np.maximum(kl, 0.0)))


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """The log-probabilities of logits `[rows, vocab]`, in nats; minus infinity is kept."""
    below = logits - logits.max(axis=1, keepdims=True)
    found: NDArray[np.float32] = below - np.log(np.exp(below).sum(axis=1, keepdims=True))
    return found


def _difference(logs: Floats, others: Floats) -> Floats:
    """`logs` minus `others`, with 0 where both are minus infinity."""
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(logs - others, nan=0.0, posinf=np.inf, neginf=-np.inf)


def mcnemar(gained: int, lost: int) -> float:
    """Exact two-sided McNemar test: the probability that changed pairs are at least this one-sided by chance."""
    from scipy.stats import binomtest

    changed = gained + lost
    return 1.0 if changed == 0 else float(binomtest(gained, changed, 0.5).pvalue)


def clopper_pearson(count: int, total: int) -> Interval:
    """The exact interval of a proportion; all of [0, 1] if nothing was counted."""
    from scipy.stats import binomtest

    if total == 0:
        return Interval(low=0.0, high=1.0, method="clopper-pearson")
    found = binomtest(count, total).proportion_ci(method="exact")
    return Interval(low=float(found.low), high=float(found.high), method="clopper-pearson")


def changed_share(gained: int, lost: int, pairs: int) -> Interval:
    """An interval of the difference of two shares over `pairs` pairs, of which `gained` changed from 0 to 1 and `lost`
    from 1 to 0.

    The difference is the share of pairs that changed, times the surplus of gains among them. Each end is the product of
    exact bounds of both: that of the surplus, and the one of the share that puts the end farther out. So it leaves out
    0 exactly if `mcnemar` is less than 0.05, and at least 95% of such intervals hold the true difference.
    """
    changed = gained + lost
    share = clopper_pearson(changed, pairs)
    surplus = clopper_pearson(gained, changed)
    low, high = 2 * surplus.low - 1, 2 * surplus.high - 1
    return Interval(
        low=low * (share.low if low > 0 else share.high),
        high=high * (share.high if high > 0 else share.low),
        method="clopper-pearson, of changes and of gains among them",
    )


def sign_flips(differences: Sequence[float], seed: int) -> float:
    """The two-sided p-value of differences within pairs: how often their mean is as far from 0 if each has a random
    sign. Exact for up to 13 differences that are not 0, and over `FLIPS` draws for more. 1 without any, and if one is
    not finite."""
    from scipy.stats import permutation_test

    found = np.asarray([each for each in differences if each], dtype=np.float64)
    if len(found) < 2 or not np.isfinite(found).all():
        return 1.0
    dice = np.random.default_rng(seed)
    asked: dict[str, Any] = {"permutation_type": "samples", "vectorized": True, "n_resamples": FLIPS, "batch": 500}
    return float(permutation_test((found,), np.mean, rng=dice, **asked).pvalue)


def holm(values: Sequence[float]) -> tuple[float, ...]:
    """p-values adjusted by Holm's step-down method, in the given order: bounds the chance of any false positive."""
    adjusted, worst = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=lambda place: values[place])):
        worst = max(worst, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = worst
    return tuple(adjusted)


class Sooner(NamedTuple):
    """One-sided p-values of "these do not come sooner than those": of Kolmogorov-Smirnov and of Mann-Whitney."""

    ks: float
    mann_whitney: float


EXACT = 30
"""The largest sample for which the Mann-Whitney test is exact: on small samples the approximation is off by several
times."""


def sooner(these: Sequence[float], those: Sequence[float]) -> Sooner:
    """Test whether `these` times are shorter than `those`; both need at least one value."""
    from scipy.stats import ks_2samp, mannwhitneyu

    ks = ks_2samp(these, those, alternative="greater")  # shorter times: the greater distribution function
    method = "asymptotic" if {*these} & {*those} else _method(these, those)
    found = mannwhitneyu(these, those, alternative="less", method=method)
    return Sooner(float(ks.pvalue), float(found.pvalue))


def power(these: Sequence[float], those: Sequence[float], level: float, seed: int, resamples: int = 400) -> float:
    """The bootstrap estimate of how often a one-sided Mann-Whitney test at `level` finds that `these` times are shorter
    than `those`, on samples of the same sizes. A time that is drawn twice ties only with itself, which changes nothing
    in the test, so it is exact where `sooner` is."""
    from scipy.stats import mannwhitneyu

    dice = np.random.default_rng(seed)
    first = dice.choice(these, (resamples, len(these)))
    second = dice.choice(those, (resamples, len(those)))
    found = mannwhitneyu(first, second, alternative="less", axis=1, method=_method(these, those))
    return float((found.pvalue < level).mean())


def _method(these: Sequence[float], those: Sequence[float]) -> str:
    return "exact" if max(len(these), len(those)) <= EXACT else "asymptotic"


def pooled_mean(games: Sequence[Floats]) -> float:
    """The mean over all rows of all games; 0 where there are none."""
    rows = sum(len(game) for game in games)
    return float(sum(game.sum() for game in games) / rows) if rows else 0.0


def clustered(games: Sequence[Floats], seed: int) -> Interval:
    """The percentile bootstrap interval of `pooled_mean`. Whole games are drawn, never single rows, because the rows of
    one game depend on each other. With fewer than two games the interval is the mean itself."""
    held = [game for game in games if len(game)]
    return pooled(np.array([game.sum() for game in held]), np.array([float(len(game)) for game in held]), seed)[1]


def pooled(sums: Floats, counts: Floats, seed: int) -> tuple[float, Interval]:
    """The mean over all rows of all games, from each game's sum and number of rows, with its percentile bootstrap
    interval over whole games. With fewer than two games the interval is the mean itself; 0 without any."""
    mean = float(sums.sum() / counts.sum()) if len(counts) else 0.0
    if len(sums) < 2:
        return mean, Interval(low=mean, high=mean, method="one game: no interval")
    found = _bootstrap(
        samples=(sums, counts), statistic=_ratio, seed=seed, resamples=1999, method="bootstrap clustered by game"
    )
    return mean, found


def resampled(values: Sequence[float], seed: int) -> Interval:
    """The bootstrap interval of the mean of independent values, such as differences within pairs. With fewer than two
    values, or one that is not finite, it is the mean itself."""
    found = np.asarray(values, dtype=np.float64)
    if len(found) < 2 or not np.isfinite(found).all():
        with np.errstate(invalid="ignore"):
            mean = float(found.mean()) if len(found) else 0.0
        why = "fewer than two" if len(found) < 2 else "not finite"
        return Interval(low=mean, high=mean, method=f"{why}: no interval")
    return _bootstrap(samples=(found,), statistic=np.mean, seed=seed, resamples=9999, method="paired bootstrap")


def _bootstrap(
    samples: tuple[Floats, ...], statistic: Callable[..., Any], seed: int, resamples: int, method: str
) -> Interval:
    """The percentile bootstrap interval; several samples are resampled jointly."""
    from scipy.stats import bootstrap

    dice = np.random.default_rng(seed)
    found = bootstrap(samples, statistic, paired=len(samples) > 1, n_resamples=resamples, method="percentile", rng=dice)
    ends = found.confidence_interval
    low, high = sorted((float(ends.low), float(ends.high)))  # rounding may swap two equal ends
    return Interval(low=low, high=high, method=method)


def _ratio(sums: Floats, counts: Floats, axis: int = -1) -> Any:
    return sums.sum(axis=axis) / counts.sum(axis=axis)


FEW = 5
"""With fewer repeats than this, a spread is the minimum and maximum."""


class Spread(Frozen):
    """The median and range of repeats: `method` is "bootstrap, 95%", or "least to largest" of few or equal values."""

    middle: float
    low: float
    high: float
    method: str

    def shown(self, digits: int = 2, unit: float = 1.0) -> str:
        """Median and range as text; only the median if low and high are equal."""
        middle, low, high = (f"{value * unit:.{digits}f}" for value in (self.middle, self.low, self.high))
        return middle if self.low == self.high else f"{middle} ({low}-{high})"


def spread(values: Sequence[float], seed: int = 0) -> Spread:
    """The spread of at least one value; deterministic. `ExtraMissing`: `FEW` or more values need scipy."""
    if len(values) < FEW or min(values) == max(values):
        return Spread(middle=median(values), low=min(values), high=max(values), method="least to largest")
    require(f"for an interval of {FEW} values and more", "lab")
    found = _bootstrap(
        samples=(np.asarray(values),), statistic=np.median, seed=seed, resamples=1999, method="bootstrap, 95%"
    )
    return Spread(middle=median(values), low=found.low, high=found.high, method=found.method)


class Median(NamedTuple):
    """The median, minimum and maximum of a few ratios."""

    middle: float
    least: float
    largest: float

    def shown(self, between: str = " to ") -> str:
        """As text, with two digits."""
        return f"{self.middle:.2f} ({self.least:.2f}{between}{self.largest:.2f})"


def ratios(these: Sequence[float], those: Sequence[float]) -> Median:
    """The ratios of `these` to `those`, paired within each repeat."""
    found = [a / b for a, b in zip(these, those, strict=True)]
    return Median(median(found), min(found), max(found))


def proven_bits(accuracy: float, classes: int) -> float:
    """A lower bound of the mutual information, in bits, that a guess among `classes` equally frequent classes with this
    accuracy proves (Fano's inequality); 0 at chance and below."""
    if classes < 2 or accuracy <= 1 / classes:
        return 0.0
    error = min(max(1 - accuracy, 0.0), 1.0)
    doubt = sum(-share * log2(share) for share in (error, 1 - error) if share > 0)
    return max(0.0, log2(classes) - doubt - error * log2(classes - 1))
