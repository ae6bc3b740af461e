"""The figures that the paper prints, by table, row and score (Bai & Eisner, arXiv 2512.23049v1, of Llama-3.1-8B).

All are from the paper's text, except those of Figure 8: the paper draws it and prints no number, and the authors'
repository (github.com/tjbai/choreo, SUMMARY.md) has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Figure(NamedTuple):
    """One figure of the paper. `low` and `high` are the ends of the 95% interval of its difference from the baseline,
    if the paper prints them. `differs` is what the paper's text says if it prints none: whether the difference is more
    than chance."""

    value: float
    low: float | None = None
    high: float | None = None
    differs: bool | None = None


class Won(NamedTuple):
    """How often the baseline's text is preferred to a row's, and how often the row's is, with the ends of their 95%
    intervals; the rest are ties."""

    baseline: tuple[float, float, float]
    row: tuple[float, float, float]


class Sooner(NamedTuple):
    """Baseline over choreographed: times to the first token and to the end, each with the ends of its 95% interval."""

    first: tuple[float, float, float]
    end: tuple[float, float, float]


Figures = Mapping[str, Mapping[str, Figure]]
"""Figures by row label and score."""

MULTI_QA: Figures = {
    "baseline, serial": {
        "all right": Figure(0.564),
        "first right": Figure(0.718),
        "last right": Figure(0.748),
    },
    "choreographed, serial": {
        "all right": Figure(0.004, differs=True),
        "first right": Figure(0.020),
        "last right": Figure(0.610),
    },
    "choreographed, parallel": {
        "all right": Figure(0.004, differs=True),
        "first right": Figure(0.328),
        "last right": Figure(0.262),
    },
    "choreographed, parallel, tuned": {
        "all right": Figure(0.493),
        "first right": Figure(0.681),
        "last right": Figure(0.719),
    },
}
"""Table 1."""
STORIES: Figures = {
    "baseline, serial": {
        "covered": Figure(0.810),
        "covered of group 1": Figure(0.876),
        "covered of group 2": Figure(0.824),
    },
    "choreographed, serial": {
        "covered": Figure(0.651, -0.202, -0.116),
        "covered of group 1": Figure(0.805),
        "covered of group 2": Figure(0.530),
    },
    "choreographed, parallel": {
        "covered": Figure(0.630, -0.221, -0.140),
        "covered of group 1": Figure(0.674),
        "covered of group 2": Figure(0.650),
    },
    "choreographed, parallel, tuned": {
        "covered": Figure(0.816, -0.027, 0.038),
        "covered of group 1": Figure(0.856),
        "covered of group 2": Figure(0.853),
    },
    "baseline, serial, tuned": {
        "covered": Figure(0.788, -0.052, 0.010),
        "covered of group 1": Figure(0.870),
        "covered of group 2": Figure(0.775),
    },
}
"""Table 2, left."""
WINS: Mapping[str, Won] = {
    "baseline, serial, tuned": Won((0.32, 0.20, 0.46), (0.68, 0.54, 0.80)),
    "choreographed, serial": Won((0.58, 0.44, 0.77), (0.08, 0.02, 0.16)),
    "choreographed, parallel": Won((0.56, 0.42, 0.70), (0.06, 0.00, 0.14)),
    "choreographed, parallel, tuned": Won((0.30, 0.18, 0.44), (0.30, 0.18, 0.42)),
}
"""Table 2, right, judged by GPT-4o."""
DILEMMA: Figures = {
    "free, baseline": {"bob cooperates": Figure(0.783)},
    "free, choreographed": {"bob cooperates": Figure(0.639, -0.207, -0.096)},
    "free, choreographed, tuned": {"bob cooperates": Figure(0.768, -0.061, 0.044)},
    "always cooperate, baseline": {"bob cooperates": Figure(0.877)},
    "always cooperate, choreographed": {"bob cooperates": Figure(0.782, -0.142, -0.042)},
    "always cooperate, choreographed, tuned": {"bob cooperates": Figure(0.839, -0.060, 0.028)},
    "always defect, baseline": {"bob cooperates": Figure(0.728)},
    "always defect, choreographed": {"bob cooperates": Figure(0.467, -0.309, -0.189)},
    "always defect, choreographed, tuned": {"bob cooperates": Figure(0.683, -0.081, 0.037)},
}
"""Table 3."""
QUESTIONS: Figures = {
    "Direct": {"correct": Figure(0.188)},
    "MADiter, baseline": {"correct": Figure(0.390)},
    "MADiter, choreographed": {"correct": Figure(0.248, -0.217, -0.098)},
    "MADiter, choreographed, tuned": {"correct": Figure(0.386, -0.059, 0.051)},
    "MADiter, distilled": {"correct": Figure(0.018, -0.418, -0.323)},
    "ToT, baseline": {"correct": Figure(0.396)},
    "ToT, choreographed": {"correct": Figure(0.302, -0.155, -0.033)},
    "ToT, choreographed, tuned": {"correct": Figure(0.414, -0.053, 0.089)},
    "ToT, distilled": {"correct": Figure(0.296, -0.147, -0.053)},
    "MADpar, baseline": {"correct": Figure(0.646)},
    "MADpar, choreographed": {"correct": Figure(0.524, -0.169, -0.074)},
    "MADpar, choreographed, tuned": {"correct": Figure(0.600, -0.090, -0.0002)},
    "MADpar, distilled": {"correct": Figure(0.052, -0.639, -0.542)},
}
"""Table 4."""
TIMES: Mapping[str, Sooner] = {
    "debate": Sooner((2.0, 1.94, 2.07), (1.036, 1.028, 1.045)),
    "tree-of-thoughts": Sooner((3.5, 3.26, 3.82), (1.031, 1.026, 1.036)),
    "parallel-debate": Sooner((6.2, 5.6, 6.8), (1.027, 1.023, 1.032)),
}
"""Table 5, by scenario: MADiter, ToT and MADpar."""
GAIN = 2.2
"""The largest gain end to end of Figure 4; the text prints none of its points."""
QWEN_8B: Figures = {
    "Direct": {"correct": Figure(0.376)},
    "MADiter, baseline": {"correct": Figure(0.765)},
    "MADiter, choreographed": {"correct": Figure(0.788, -0.046, 0.054)},
    "MADiter, choreographed, tuned": {"correct": Figure(0.814, -0.018, 0.075)},
    "ToT, baseline": {"correct": Figure(0.630)},
    "ToT, choreographed": {"correct": Figure(0.560, -0.121, -0.019)},
    "ToT, choreographed, tuned": {"correct": Figure(0.646, -0.030, 0.062)},
    "MADpar, baseline": {"correct": Figure(0.422)},
    "MADpar, choreographed": {"correct": Figure(0.366, -0.107, -0.004)},
    "MADpar, choreographed, tuned": {"correct": Figure(0.414, -0.050, 0.034)},
}
"""Table 6, of Qwen3-8B."""
QWEN_14B: Figures = {
    "Direct": {"correct": Figure(0.394)},
    "MADiter, baseline": {"correct": Figure(0.786)},
    "MADiter, choreographed": {"correct": Figure(0.846, 0.021, 0.099)},
    "ToT, baseline": {"correct": Figure(0.628)},
    "ToT, choreographed": {"correct": Figure(0.726, 0.040, 0.124)},
    "MADpar, baseline": {"correct": Figure(0.458)},
    "MADpar, choreographed": {"correct": Figure(0.564, 0.090, 0.174)},
}
"""Table 6, of Qwen3-14B, which was not tuned."""


def _guessed(alice: float, predicted: float, correct: float, exploits: float, defends: float) -> dict[str, Figure]:
    """A row of Table 7. Of Bob's prediction the text says that choreography changes it by no more than chance."""
    return {
        "alice cooperates": Figure(alice),
        "bob predicts cooperation": Figure(predicted, differs=False),
        "bob correct": Figure(correct),
        "bob exploits": Figure(exploits),
        "bob defends": Figure(defends),
    }


GUESSES: Figures = {
    "free, baseline": _guessed(alice=0.82, predicted=0.84, correct=0.80, exploits=0.13, defends=0.06),
    "always cooperate, baseline": _guessed(alice=1.00, predicted=0.96, correct=0.98, exploits=0.14, defends=0.03),
    "always defect, baseline": _guessed(alice=0.00, predicted=0.70, correct=0.30, exploits=0.17, defends=0.13),
    "free, choreographed": _guessed(alice=0.76, predicted=0.76, correct=0.79, exploits=0.18, defends=0.05),
    "always cooperate, choreographed": _guessed(alice=0.99, predicted=0.88, correct=0.89, exploits=0.15, defends=0.04),
    "always defect, choreographed": _guessed(alice=0.02, predicted=0.55, correct=0.45, exploits=0.27, defends=0.32),
    "free, choreographed, tuned": _guessed(alice=0.79, predicted=0.87, correct=0.80, exploits=0.19, defends=0.08),
    "always cooperate, choreographed, tuned": _guessed(
        alice=0.98, predicted=0.84, correct=0.92, exploits=0.20, defends=0.04
    ),
    "always defect, choreographed, tuned": _guessed(
        alice=0.01, predicted=0.60, correct=0.41, exploits=0.14, defends=0.23
    ),
}
"""Table 7."""
LEAKED: Figures = {
    "free, baseline": {"bob cooperates": Figure(0.783)},
    "free, choreographed, all": {"bob cooperates": Figure(0.639)},
    "free, choreographed, system prompt alone": {"bob cooperates": Figure(0.733)},
    "free, choreographed, plan alone": {"bob cooperates": Figure(0.679)},
    "always cooperate, baseline": {"bob cooperates": Figure(0.877)},
    "always cooperate, choreographed, all": {"bob cooperates": Figure(0.782)},
    "always cooperate, choreographed, system prompt alone": {"bob cooperates": Figure(0.917)},
    "always cooperate, choreographed, plan alone": {"bob cooperates": Figure(0.823)},
    "always defect, baseline": {"bob cooperates": Figure(0.728)},
    "always defect, choreographed, all": {"bob cooperates": Figure(0.467)},
    "always defect, choreographed, system prompt alone": {"bob cooperates": Figure(0.205)},
    "always defect, choreographed, plan alone": {"bob cooperates": Figure(0.362)},
}
"""Figure 8."""
