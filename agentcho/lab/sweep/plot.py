"""The plot of a sweep: one panel per metric, each row with its interval; lines if an option is numeric.

Needs matplotlib, of `agentcho[lab]`. Must not read result files or know how anything was measured.
"""

from __future__ import annotations

from math import ceil, isfinite
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agentcho.audit.wording import many
from agentcho.lab.compare.comparison import Metric
from agentcho.lab.plots import BLUE, COLOURS, GREY, reach, save, unplottable
from agentcho.lab.sweep.data import Row, SweepData

DODGE = 0.012
"""Lines are offset by this share of the axis, so that no interval hides another."""
ACROSS = 4
"""The maximum of panels side by side."""
MOST_ROWS, MOST_LINES, LONGEST = 60, 12, 46
"""The maximum of rows with names, of lines with a legend, and of letters in a name."""


def plot(found: SweepData, file: Path) -> None:
    """Write the plot in the format of the file's suffix."""
    save(drawn(found), file)


def drawn(found: SweepData) -> Figure:
    """The plot as a matplotlib figure."""
    number = _number(found)
    panels = max(1, len(found.metrics))
    across = min(panels, ACROSS)
    down = ceil(panels / across)
    height = 3.2 if number else 1.0 + 0.3 * min(len(found.rows), MOST_ROWS)
    figure = Figure(figsize=(2.6 + 3.2 * across, 0.4 + down * height), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for place, (axis, metric) in enumerate(zip(axes, found.metrics, strict=False)):
        if number:
            _lines(axis, found, metric, number)
        else:
            _points(axis, found, metric, labelled=place % across == 0)
        axis.set_title(f"{metric.name}, % of games" if metric.binary else metric.name, fontsize=9)
        axis.tick_params(labelsize=8)
    for axis in axes[panels:]:
        axis.set_axis_off()
    if not found.metrics:
        axes[0].text(0.5, 0.5, "no game has a score", ha="center")
        axes[0].set_axis_off()
    handles, names = axes[0].get_legend_handles_labels()
    if 1 < len(names) <= MOST_LINES:
        figure.legend(handles, names, loc="outside lower center", ncols=min(3, len(names)), fontsize=8)
    figure.suptitle(f"{found.scenario}: {many(found.games, 'game')} a cell, paired, 95 % intervals", fontsize=10)
    return figure


def _number(found: SweepData) -> str | None:
    """The option to draw lines over: the numeric one with the most values, at least three."""
    values = {name: {row.values[name] for row in found.rows} for name in found.varied}
    numeric = [name for name in values if len(values[name]) > 2 and all(map(_is_number, values[name]))]
    return max(numeric, key=lambda name: len(values[name]), default=None)


def _is_number(word: str) -> bool:
    try:
        return isfinite(float(word))
    except ValueError:
        return False


def _points(axis: Axes, found: SweepData, metric: Metric, labelled: bool) -> None:
    """Draw one line per row, with its mean as a dot; references are grey."""
    scale = 100 if metric.binary else 1
    for place, row in enumerate(reversed(found.rows)):
        mean = metric.means[row.name]
        if mean.games and isfinite(mean.value):
            colour = GREY if row.reference is None else BLUE
            error = reach([scale * mean.value], [_Scaled(mean.span.low, mean.span.high, scale)])
            axis.errorbar([scale * mean.value], [place], xerr=error, fmt="o", color=colour, capsize=3, markersize=5)
        else:
            unplottable(axis, place, str(mean.value) if mean.games else "no game")
    named = labelled and len(found.rows) <= MOST_ROWS
    names = [_label(found, row) for row in reversed(found.rows)] if named else [""] * len(found.rows)
    axis.set_yticks(range(len(found.rows)), names, fontsize=8)
    axis.set_ylim(-0.6, len(found.rows) - 0.4)
    axis.grid(axis="x", color=GREY, alpha=0.25, linewidth=0.6)
    if metric.binary:
        axis.set_xlim(-2, 102)


def _lines(axis: Axes, found: SweepData, metric: Metric, number: str) -> None:
    """Draw a line over the values of one option for each combination of the others."""
    scale, lines = 100 if metric.binary else 1, dict[str, list[Row]]()
    for row in found.rows:
        lines.setdefault(_label(found, row, number), []).append(row)
    places = [float(row.values[number]) for row in found.rows]
    apart = DODGE * (max(places) - min(places))
    for place, (name, rows) in enumerate(lines.items()):
        there = sorted((row for row in rows if metric.means[row.name].games), key=lambda row: float(row.values[number]))
        means = [metric.means[row.name] for row in there]
        values = [scale * mean.value for mean in means]
        error = reach(values, [_Scaled(mean.span.low, mean.span.high, scale) for mean in means])
        at = [float(row.values[number]) + apart * (place - (len(lines) - 1) / 2) for row in there]
        colour = COLOURS[place % len(COLOURS)]
        axis.errorbar(at, values, yerr=error, marker="o", capsize=3, color=colour, label=name or None, linewidth=1.2)
    axis.set_xlabel(number, fontsize=8)
    axis.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.6)
    if metric.binary:
        axis.set_ylim(-2, 102)


class _Scaled:
    """An interval in another unit."""

    def __init__(self, low: float, high: float, scale: float) -> None:
        self.low, self.high = scale * low, scale * high


def _label(found: SweepData, row: Row, without: str | None = None) -> str:
    """The values of a row, without the option on the plot's axis."""
    name = " ".join(f"{axis}={row.values[axis]}" for axis in found.varied if axis != without)
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 3]}…{name[-(LONGEST - LONGEST // 3) :]}"
