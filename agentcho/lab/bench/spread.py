"""A median of repeats with an interval. Does not know: what was timed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np
from pydantic import BaseModel, ConfigDict

from agentcho.extras import require

FEW = 5
"""With fewer repeats than this an interval is the least and the largest of them."""


class Spread(BaseModel):
    """A median and an interval; `method` says which: "bootstrap, 95%", or "least to largest" of few repeats."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    middle: float
    low: float
    high: float
    method: str

    def shown(self, digits: int = 2, unit: float = 1.0) -> str:
        """Median and interval in words; the median alone where there is nothing between."""
        middle, low, high = (f"{value * unit:.{digits}f}" for value in (self.middle, self.low, self.high))
        return middle if self.low == self.high else f"{middle} ({low}-{high})"


def spread(values: Sequence[float], seed: int = 0) -> Spread:
    """Of at least one value. The same for the same values. `ExtraMissing`: `FEW` of them and more need scipy."""
    if len(values) < FEW or min(values) == max(values):
        return Spread(middle=median(values), low=min(values), high=max(values), method="least to largest")
    require(f"for an interval of {FEW} values and more", "lab")
    from scipy.stats import bootstrap

    found = bootstrap(
        (np.asarray(values),), np.median, n_resamples=1999, method="percentile", rng=np.random.default_rng(seed)
    ).confidence_interval
    return Spread(middle=median(values), low=float(found.low), high=float(found.high), method="bootstrap, 95%")
