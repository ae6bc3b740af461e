"""When a way of reading counts as the baseline's: what is fast and says something else has not met a target.

Does not know: what was played, how anything is measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Words = Literal["same", "changed", "unknown"]
"""What a way of reading makes of the baseline's words; "unknown": nobody has judged it."""
NEAR = 0.01
"""KL(baseline || it) in nats a token: below it the words are the same."""
POINT = 0.01
"""Of a score between 0 and 1: so far from the baseline's at most the words do as well."""
ROUNDING = 1e-9


def near(kl: float | None) -> Words:
    """By the divergence alone: what forced words tell where nothing is scored."""
    return "unknown" if kl is None else "same" if kl < NEAR else "changed"


def judged(kl: float | None, off: Iterable[float]) -> Words:
    """By the divergence, and by how far the means of all scores are from the baseline's. Both have to be within their
    bounds: a score at its ceiling hides what the divergence shows, and words that are near on average may still miss
    the answer. One that is out of bounds is enough for "changed"; "unknown": one of both was not measured."""
    scores = list(off)
    if near(kl) == "changed" or any(abs(each) > POINT + ROUNDING for each in scores):
        return "changed"
    return "same" if kl is not None and scores else "unknown"


def worst(found: Iterable[Words]) -> Words:
    """That of several subjects together."""
    each = set(found)
    return "changed" if "changed" in each else "same" if each == {"same"} else "unknown"
