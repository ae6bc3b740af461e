"""Bar charts of the small benchmarks on the page of all speed tables: one bar per arm, grouped by subject."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agentcho.audit.wording import many
from agentcho.lab.bench.result import Kind, Result
from agentcho.lab.plots import COLOURS, reach, save

BARS: Mapping[Kind, Mapping[str, str]] = {
    "cost": {"seconds": "end to end, seconds"},
    "step": {"seconds": "a decode step, seconds"},
    "room": {"agents": "agents whose first tokens come in time"},
    "roofline": {"reached": "least time ÷ time taken"},
    "serve": {"ttft": "first token, seconds", "rate": "tokens per second"},
    "talk": {"token": "seconds per spoken token"},
    "peers": {"step": "a decode step, seconds", "rate": "tokens per second"},
}
"""What is drawn of each benchmark, with its title."""


def plot_bars(result: Result, file: Path) -> None:
    """Draw a panel for each quantity of this benchmark, with the interval of each bar."""
    panels = BARS[result.bench]
    most = max(sum(len(_arms(result, subject, what)) for subject in result.subjects) for what in panels)
    figure = Figure(figsize=(8.0 if len(panels) == 1 else 12.4, 1.5 + 0.22 * most), layout="constrained")
    for axis, (what, title) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        _groups(axis, result, what)
        axis.set_title(title, fontsize=9)
    figure.suptitle(f"{result.model}, {result.numbers}, {many(result.repeats, 'repeat')}", fontsize=10)
    save(figure, file)


def _arms(result: Result, subject: str, what: str) -> list[str]:
    return [arm for arm in result.arms if result.values(subject, arm, what)]


def _groups(axis: Axes, result: Result, what: str) -> None:
    subjects = [subject for subject in result.subjects if _arms(result, subject, what)]
    arms = [arm for arm in result.arms if any(arm in _arms(result, subject, what) for subject in subjects)]
    height = 0.8 / len(arms)
    for number, arm in enumerate(arms):
        own = [place for place, subject in enumerate(subjects) if arm in _arms(result, subject, what)]
        found = [result.spread(subjects[place], arm, what) for place in own]
        at, middles = [place - 0.4 + height * (number + 0.5) for place in own], [each.middle for each in found]
        colour, hatch = COLOURS[number % len(COLOURS)], "//" * (number // len(COLOURS))
        axis.barh(at, middles, height=height, label=arm, color=colour, hatch=hatch)
        axis.errorbar(middles, at, xerr=reach(middles, found), fmt="none", ecolor="black", capsize=2)
    axis.set_yticks(range(len(subjects)), [_short(subject) for subject in subjects], fontsize=7)
    axis.invert_yaxis()
    axis.tick_params(axis="x", labelsize=8)
    if len(arms) > 1:
        axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _short(subject: str) -> str:
    """A subject as a label: a recorded workflow by the last word of its name, and long names on two lines."""
    name = subject.rpartition(" ")[2] if subject.startswith("trace ") else subject
    return name.replace(".", "\n", 1) if len(name) > 30 else name.replace(", ", ",\n", 1) if len(name) > 24 else name
