"""The cost of enforcement, and of the deterministic profile compared with the fast one, as one table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agentcho.lab.bench.arms import AUDIT, ENFORCE, exactly
from agentcho.lab.bench.result import Result

PLAYED = ("debate", "tree-of-thoughts", "prisoners-dilemma")
"""Workflows that are timed by default: with few speakers, with many at once, with many private words."""
ARMS = (AUDIT, ENFORCE, exactly(AUDIT), exactly(ENFORCE))
MEASURED = {"ttft": "first token", "seconds": "end to end"}


class Ratio(NamedTuple):
    """One arm's time divided by another's."""

    arm: str
    to: str


ENFORCED, ENFORCED_EXACTLY = Ratio(ENFORCE, AUDIT), Ratio(exactly(ENFORCE), exactly(AUDIT))
EXACT_AUDIT, EXACT_ENFORCE = Ratio(exactly(AUDIT), AUDIT), Ratio(exactly(ENFORCE), ENFORCE)
RATIOS = {
    "enforce ÷ audit": ENFORCED,
    "both deterministic": ENFORCED_EXACTLY,
    "deterministic ÷ fast, audit": EXACT_AUDIT,
    "deterministic ÷ fast, enforce": EXACT_ENFORCE,
}
HEADS = ("audit", *RATIOS)
"""The columns after workflow and measure: seconds of the fastest arm, and ratios to it and to others."""


def rows(result: Result) -> Iterator[tuple[str, ...]]:
    """First tokens and total time of each workflow, with intervals over the repeats."""
    for subject in result.subjects:
        for measured, name in MEASURED.items():
            seconds = f"{result.spread(subject, AUDIT, measured).shown(3)} s"
            ratios = (result.ratio([subject], *ratio, measured).shown() for ratio in RATIOS.values())
            yield (subject if measured == "ttft" else "", name, seconds, *ratios)
