"""Draws a result: bars of ratios with their intervals, or lines over what was swept.

Does not know: files of results.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from agentcho.lab.bench.arms import BASELINE
from agentcho.lab.bench.plans import UNNAMED
from agentcho.lab.bench.result import Result

COLOURS = ("#4477aa", "#228833", "#8a8f98", "#ee6677", "#ccbb44")


def plot(result: Result, file: Path) -> None:
    """Write a picture; its ending says of which kind. Ratios are baseline over arm: above 1 is faster."""
    flows = result.halves[0] if result.bench == "gpu" else result
    played = result.bench in ("workflows", "gpu")
    figure = _ratios(flows, result.sweep is not None) if played else _values(result)
    figure.suptitle(f"{result.model}, {result.dtype}, {result.repeats} repeats", fontsize=10)
    figure.savefig(file, dpi=150, metadata={"Software": None} if file.suffix == ".png" else None)


def _ratios(result: Result, lines: bool) -> Figure:
    measured = ("ttft", "seconds") if result.stepwise else ("ttft",)
    places = list(dict.fromkeys(s.removesuffix(UNNAMED) if lines else s for s in result.subjects))
    figure = Figure(figsize=(5.4 * len(measured), 3.8), layout="constrained")
    for axis, what in zip(figure.subplots(1, len(measured), squeeze=False)[0], measured, strict=True):
        for number, arm in enumerate(arm for arm in result.arms if arm != BASELINE):
            if lines:
                _line(axis, result, arm, what, number, places, unnamed=False)
                _line(axis, result, arm, what, number, places, unnamed=True)
            else:
                _bars(axis, result, arm, what, number)
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set_xticks(range(len(places)), places, fontsize=7, rotation=25, ha="right")
        axis.set_title(f"{'first token' if what == 'ttft' else 'end to end'}: baseline ÷ arm", fontsize=9)
        axis.legend(fontsize=7)
    return figure


def _line(axis: Any, result: Result, arm: str, what: str, number: int, places: Sequence[str], unnamed: bool) -> None:
    """Over what was swept; of debates without names a line of its own, dashed."""
    of_kind = [subject for subject in result.subjects if subject.endswith(UNNAMED) == unnamed]
    subjects, values, reach = _gained(result, of_kind, arm, what)
    if subjects:
        at = [places.index(subject.removesuffix(UNNAMED)) for subject in subjects]
        axis.errorbar(
            at,
            values,
            yerr=reach,
            marker="o",
            capsize=3,
            color=COLOURS[number % len(COLOURS)],
            linewidth=1.2,
            label=arm + UNNAMED * unnamed,
            linestyle="--" if unnamed else "-",
        )


def _bars(axis: Any, result: Result, arm: str, what: str, number: int) -> None:
    subjects, values, reach = _gained(result, result.subjects, arm, what)
    width = 0.8 / max(1, len(result.arms) - 1)
    at = [result.subjects.index(subject) - 0.4 + width * (number + 0.5) for subject in subjects]
    axis.bar(at, values, width=width, color=COLOURS[number % len(COLOURS)], label=arm)
    axis.errorbar(at, values, yerr=reach, fmt="none", ecolor="black", capsize=2)


def _gained(
    result: Result, subjects: Sequence[str], arm: str, what: str
) -> tuple[list[str], list[float], list[list[float]]]:
    """Those that were measured in both arms: baseline over this one, and how far the intervals reach to both sides."""
    there = [subject for subject in subjects if result.has(subject, arm, BASELINE)]
    found = [result.ratio([subject], BASELINE, arm, what) for subject in there]
    reach = [[each.middle - each.low for each in found], [each.high - each.middle for each in found]]
    return there, [each.middle for each in found], reach


def _values(result: Result) -> Figure:
    """Of the small benchmarks: the first thing that each subject measured, arm by arm."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axis = figure.subplots()
    what = {"growth": "ttft", "roofline": "reached", "overhead": "share", "stall": "p95"}.get(result.bench, "seconds")
    for number, arm in enumerate(result.arms):
        subjects = [s for s in result.subjects if result.values(s, arm, what)]
        found = [result.spread(subject, arm, what) for subject in subjects]
        places = [result.subjects.index(subject) for subject in subjects]
        reach = [[e.middle - e.low for e in found], [e.high - e.middle for e in found]]
        if found:
            axis.errorbar(
                places, [e.middle for e in found], yerr=reach, marker="o", capsize=3, color=COLOURS[number], label=arm
            )
    axis.set_xticks(range(len(result.subjects)), result.subjects, fontsize=7)
    axis.set_ylim(bottom=0)
    axis.set_title("seconds to the first token" if what == "ttft" else what, fontsize=9)
    axis.legend(fontsize=7)
    return figure
