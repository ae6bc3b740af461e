"""Decides when the words of a reading mode count as the baseline's: a mode that is fast but says something else does
not meet a target.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Words = Literal["same", "changed", "unknown"]
"""Whether a reading mode keeps the baseline's words; "unknown": it was not judged."""
NEAR = 0.01
"""The limit of KL(baseline || mode) in nats a token, below which the words count as the same."""
POINT = 0.01
"""The largest difference from the baseline's score (0 to 1) at which the words count as equally good."""
ROUNDING = 1e-9


def near(kl: float | None) -> Words:
    """Judge by the divergence alone: forced texts have no score."""
    return "unknown" if kl is None else "same" if kl < NEAR else "changed"


def judged(kl: float | None, off: Iterable[float]) -> Words:
    """Judge by the divergence, and by the differences of all mean scores from the baseline's. Both have to be within
    bounds: a score at its ceiling hides what the divergence shows, and words that are near on average may still miss
    the answer. One out of bounds gives "changed"; "unknown": one of the two was not measured."""
    scores = list(off)
    if near(kl) == "changed" or any(abs(each) > POINT + ROUNDING for each in scores):
        return "changed"
    return "same" if kl is not None and scores else "unknown"


def worst(found: Iterable[Words]) -> Words:
    """The joint verdict on several subjects."""
    each = set(found)
    return "changed" if "changed" in each else "same" if each == {"same"} else "unknown"
