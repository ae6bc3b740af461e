"""Draws all plots: comparisons, benchmarks, trainings, and the effects that an audit measured.

Needs matplotlib, of `agentcho[lab]`. Must not read result files or know how anything was measured.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import floor, isfinite, log10
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Protocol

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agentcho.audit.measurement import Arm, Effect, Interval, Measurement, Swap
from agentcho.audit.wording import ARMS, many
from agentcho.errors import ConfigError
from agentcho.lab.bench.arms import BASELINE
from agentcho.lab.bench.plans import UNNAMED
from agentcho.lab.bench.result import Result
from agentcho.lab.compare.comparison import Comparison, Metric
from agentcho.lab.plan.planning import Plan
from agentcho.lab.reading.result import FidelityResult
from agentcho.lab.stats import Spread

COLOURS = ("#4477aa", "#228833", "#8a8f98", "#ee6677", "#ccbb44")
HUES, SIGNS = (*COLOURS[:2], *COLOURS[3:]), ("o", "s", "^", "D", "v")
ROUNDING = 1e-7
"""Divergences below it are rounding errors."""
FIGURE_4 = 2.2
"""The largest end-to-end gain in Figure 4 of arXiv 2512.23049, over branches and voters of a tree of thoughts."""
BLUE, GREY, PALE = COLOURS[0], COLOURS[2], "#b8c4d0"


class _Range(Protocol):
    """An interval or a spread."""

    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


def reach(middles: Sequence[float], ranges: Sequence[_Range]) -> list[list[float]]:
    """The distances from each middle down to the low end and up to the high end, in matplotlib's error bar format."""
    both = list(zip(middles, ranges, strict=True))
    return [[max(0.0, m - r.low) for m, r in both], [max(0.0, r.high - m) for m, r in both]]


def unplottable(axis: Axes, place: float, what: str) -> None:
    """Write at the left edge why a row has no mark, such as a mean that is not finite."""
    axis.annotate(what, (0.02, place), xycoords=("axes fraction", "data"), fontsize=7, va="center")


def save(figure: Figure, file: Path) -> None:
    """Write the plot in the format of the file's suffix. The same figure gives the same bytes."""
    figure.savefig(file, dpi=150, metadata={"Software": None} if file.suffix == ".png" else None)


def plot_comparison(found: Comparison, file: Path) -> None:
    """Plot each metric by column with its interval, and the divergence from the baseline against the tokens encoded."""
    apart = bool(found.fidelity and found.costs)
    panels = max(1, len(found.metrics) + apart)
    figure = Figure(figsize=(2.8 + 2.7 * panels, 1.3 + 0.42 * len(found.names) + 1.2), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    for axis, metric in zip(axes, found.metrics, strict=False):
        _metric(axis, metric, found.names, labelled=metric is found.metrics[0])
    if apart:
        _fidelity(axes[-1], found)
    figure.suptitle(f"{found.request.scenario}: {many(found.request.games, 'game')}, paired", fontsize=10)
    save(figure, file)


def _metric(axis: Axes, metric: Metric, names: tuple[str, ...], labelled: bool) -> None:
    every = list(range(len(names), 0, -1))
    bars = {place: metric.means[name] for place, name in zip(every, names, strict=True)}
    for place in [place for place in every if not isfinite(bars[place].value)]:
        unplottable(axis, place, str(bars.pop(place).value))
        axis.set_ylim(0.5, len(every) + 0.5)
    places, means = list(bars), list(bars.values())
    values, spans = [mean.value for mean in means], [mean.span for mean in means]
    axis.barh(places, values, color=[GREY if place == every[0] else BLUE for place in places], height=0.6)
    axis.errorbar(values, places, xerr=reach(values, spans), fmt="none", ecolor="black", capsize=3)
    axis.set_yticks(every, names if labelled else [""] * len(names), fontsize=8)
    axis.set_title(metric.name, fontsize=9)
    axis.set_xlim(min([0.0, *(span.low for span in spans)]), max([1.0, *(span.high for span in spans)]) * 1.02)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.tick_params(axis="x", labelsize=8)


def _fidelity(axis: Axes, found: Comparison) -> None:
    """Plot the divergence from the baseline against the tokens encoded, relative to the first column's."""
    first = sum(found.costs[found.names[0]].encoded)
    for name in found.names:
        share, held = sum(found.costs[name].encoded) / first, found.fidelity[name]
        axis.errorbar([share], [held.kl], yerr=reach([held.kl], [held.span]), fmt="o", capsize=3, label=name)
    axis.set_xlabel("tokens encoded, of the first column's", fontsize=8)
    axis.set_title("KL from baseline, nats a token", fontsize=9)
    axis.set_ylim(bottom=0)
    axis.margins(x=0.2)
    axis.legend(fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axis.tick_params(labelsize=8)


def plot_front(found: Comparison, file: Path) -> None:
    """Plot divergence against cost, one point with its interval per column, and the Pareto front: see
    `Comparison.front`. `ConfigError`: no column has both."""
    known = [name for name in found.names if name in found.fidelity and name in found.costs]
    if not known:
        raise ConfigError("there is nothing to draw: give --fidelity-games and --timed-games above 0, and a real model")
    figure = Figure(figsize=(8.2, 4.2), layout="constrained")
    axis, first = figure.subplots(), sum(found.costs[known[0]].encoded)
    at = {name: (sum(found.costs[name].encoded) / first, found.fidelity[name].kl) for name in known}
    for number, name in enumerate(known):
        (share, kl), span = at[name], found.fidelity[name].span
        colour, sign = HUES[number % len(HUES)], SIGNS[number // len(HUES) % len(SIGNS)]
        inside = colour if name in found.front else "white"
        axis.errorbar(
            [share],
            [kl],
            yerr=reach([kl], [span]),
            fmt=sign,
            color=colour,
            markerfacecolor=inside,
            capsize=3,
            label=name,
        )
    steps = sorted(at[name] for name in found.front)
    axis.plot(*zip(*steps, strict=True), drawstyle="steps-post", color=GREY, linewidth=1, zorder=1, label="front")
    axis.set_xlabel(f"tokens encoded, of {known[0]}'s", fontsize=8)
    axis.set_ylabel("KL from baseline, nats a token", fontsize=8)
    least = _least(kl for _, kl in at.values())
    axis.set_yscale("symlog", linthresh=least)
    axis.set_ylim(bottom=-least / 2)
    axis.margins(x=0.1)
    axis.legend(
        fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), title="filled: on the front", title_fontsize=7
    )
    axis.tick_params(labelsize=8)
    axis.set_title(f"{found.request.scenario}: fidelity against cost", fontsize=10)
    save(figure, file)


def plot_readings(found: FidelityResult, file: Path) -> None:
    """Plot divergence against cost on recorded conversations: a panel per set, a point with its interval per column."""
    subjects = list(dict.fromkeys(row.subject for row in found.rows))
    columns = list(dict.fromkeys(row.column for row in found.rows))
    figure = Figure(figsize=(3.0 + 4.0 * len(subjects), 4.2), layout="constrained")
    axes = figure.subplots(1, len(subjects), squeeze=False)[0]
    for axis, subject in zip(axes, subjects, strict=True):
        own = [row for row in found.rows if row.subject == subject and row.games]
        for row in own:
            number = columns.index(row.column)
            look = {"color": HUES[number % len(HUES)], "fmt": SIGNS[number // len(HUES) % len(SIGNS)]}
            reached = reach([row.kl.value], [row.kl.span])
            axis.errorbar([row.ratio], [row.kl.value], yerr=reached, capsize=3, label=row.column, **look)
        least = _least(row.kl.value for row in own)
        axis.set_yscale("symlog", linthresh=least)
        axis.set_ylim(bottom=-least / 2)
        axis.set_title(f"{subject}: {many(max((row.games for row in own), default=0), 'conversation')}", fontsize=9)
        axis.set_xlabel("tokens encoded, of the baseline's", fontsize=8)
        axis.margins(x=0.1)
        axis.tick_params(labelsize=8)
    axes[0].set_ylabel("KL from baseline, nats a token", fontsize=8)
    axes[-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save(figure, file)


def _least(values: Iterable[float]) -> float:
    """The threshold below which a symlog axis is linear: a tenth of the smallest value above rounding."""
    return min((value for value in values if value > ROUNDING), default=1.0) / 10


def plot_training(log: Iterable[Mapping[str, Any]], title: str, file: Path) -> None:
    """Plot the loss of each step, and the loss on the held-out traces."""
    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axis, lines = figure.subplots(), list(log)
    for name, label, mark, style in (
        ("loss", "step", "-", {"color": PALE, "linewidth": 1}),
        ("dev", "held out", "o-", {"color": BLUE}),
    ):
        own = [line for line in lines if name in line]
        axis.plot([line["step"] for line in own], [line[name] for line in own], mark, label=label, **style)
    axis.set_xlabel("step")
    axis.set_ylabel("nats a word")
    axis.set_ylim(bottom=0)
    axis.set_title(title, fontsize=10)
    axis.legend(fontsize=8)
    save(figure, file)


def plot_result(result: Result, file: Path) -> None:
    """Plot a benchmark. Ratios are baseline over arm: above 1, the arm is faster."""
    waits = result.bench == "stall" and any("prefill" in each.values for each in result.figures)
    played = result.bench == "workflows"
    grows = result.sweep in ("branches", "agents")
    figure = _ratios(result, grows) if played else _waits(result) if waits else _values(result)
    figure.suptitle(f"{result.model}, {result.numbers}, {many(result.repeats, 'repeat')}", fontsize=10)
    save(figure, file)


def plot_plan(found: Plan, file: Path) -> None:
    """Plot the predicted times of each workflow, to the first token and to the end: one line per mode."""
    subjects = list(dict.fromkeys(each.subject for each in found.predicted))
    modes = list(dict.fromkeys(each.mode for each in found.predicted))
    figure = Figure(figsize=(10.8, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axis, title in ((left, "first token, seconds"), (right, "end to end, seconds")):
        for number, mode in enumerate(modes):
            each = [found.of(subject, mode) for subject in subjects]
            heights = [one.ttft if axis is left else one.seconds for one in each]
            axis.plot(subjects, heights, marker=SIGNS[number], color=HUES[number], label=mode)
        axis.margins(y=0.1)
        axis.set_ylim(bottom=0)
        axis.set_xticks(range(len(subjects)), subjects, fontsize=7, rotation=25, ha="right")
        axis.set_title(f"predicted {title}", fontsize=9)
        axis.legend(fontsize=7)
    figure.suptitle(f"{found.shape} on {found.hardware.name}, predicted", fontsize=10)
    save(figure, file)


def _ratios(result: Result, lines: bool) -> Figure:
    """Plot bars, or with `lines` one line per arm over the swept values."""
    measured = ("ttft", "seconds") if result.stepwise else ("ttft",)
    places = list(dict.fromkeys(s.removesuffix(UNNAMED) if lines else s for s in result.subjects))
    figure = Figure(figsize=(5.4 * len(measured), 3.8), layout="constrained")
    for axis, what in zip(figure.subplots(1, len(measured), squeeze=False)[0], measured, strict=True):
        for number, arm in enumerate(arm for arm in result.arms if arm != BASELINE):
            gain = _Gain(result, arm, what, COLOURS[number % len(COLOURS)])
            if lines:
                gain.line(axis, places, unnamed=False)
                gain.line(axis, places, unnamed=True)
            else:
                gain.bars(axis, number)
        axis.axhline(1, color="black", linewidth=0.8)
        if result.sweep == "branches" and what == "seconds":
            axis.axhline(FIGURE_4, color=GREY, linewidth=0.8, linestyle="--", label="the most that the paper reports")
        axis.set_xticks(range(len(places)), places, fontsize=7, rotation=25, ha="right")
        axis.set_title(f"{'first token' if what == 'ttft' else 'end to end'}: baseline ÷ arm", fontsize=9)
        axis.legend(fontsize=7)
    return figure


class _Gain(NamedTuple):
    """The ratio of the baseline to one arm, of one measured quantity."""

    result: Result
    arm: str
    what: str
    colour: str

    def line(self, axis: Axes, places: Sequence[str], unnamed: bool) -> None:
        """Draw a line over the swept values; debates without names get a separate dashed line."""
        of_kind = [subject for subject in self.result.subjects if subject.endswith(UNNAMED) == unnamed]
        subjects, found = self._of(of_kind)
        if not subjects:
            return
        at, label = [places.index(subject.removesuffix(UNNAMED)) for subject in subjects], self.arm + UNNAMED * unnamed
        _errorbar(
            axis=axis,
            at=at,
            found=found,
            colour=self.colour,
            label=label,
            linewidth=1.2,
            linestyle="--" if unnamed else "-",
        )

    def bars(self, axis: Axes, number: int) -> None:
        """Draw one bar per subject, next to the bars of other arms."""
        subjects, found = self._of(self.result.subjects)
        width = 0.8 / max(1, len(self.result.arms) - 1)
        at = [self.result.subjects.index(subject) - 0.4 + width * (number + 0.5) for subject in subjects]
        values = [each.middle for each in found]
        axis.bar(at, values, width=width, color=self.colour, label=self.arm)
        axis.errorbar(at, values, yerr=reach(values, found), fmt="none", ecolor="black", capsize=2)

    def _of(self, subjects: Iterable[str]) -> tuple[list[str], list[Spread]]:
        """The subjects that were measured in both arms, and their ratios."""
        there = [subject for subject in subjects if self.result.has(subject, self.arm, BASELINE)]
        return there, [self.result.ratio([subject], BASELINE, self.arm, self.what) for subject in there]


def _values(result: Result) -> Figure:
    """Plot a small benchmark: its main quantity by subject and arm; for societies also the memory."""
    usual = {"growth": "ttft", "roofline": "reached", "overhead": "share", "stall": "p95"}.get(result.bench, "seconds")
    there = {name for each in result.figures for name in each.values}
    society = {"memory": "bytes a message"} if {"memory", "peak"} <= there else {}
    first = usual if usual in there else "seconds"
    measured = {first: "seconds a message" if society else {"ttft": "seconds to the first token"}.get(first, first)}
    measured |= society
    figure = Figure(figsize=(6.4 if not society else 9.6, 3.8), layout="constrained")
    for axis, (what, title) in zip(figure.subplots(1, len(measured), squeeze=False)[0], measured.items(), strict=True):
        _by_subject(axis, result, what)
        axis.set_title(title, fontsize=9)
    return figure


def _by_subject(axis: Axes, result: Result, what: str) -> None:
    """Plot one measured quantity, one point per subject; the arms get a legend if there are several."""
    for number, arm in enumerate(result.arms):
        subjects = [s for s in result.subjects if result.values(s, arm, what)]
        if subjects:
            at = [result.subjects.index(subject) for subject in subjects]
            _errorbar(
                axis=axis,
                at=at,
                found=[result.spread(subject, arm, what) for subject in subjects],
                colour=COLOURS[number],
                label=arm,
            )
    axis.set_xticks(range(len(result.subjects)), result.subjects, fontsize=7)
    axis.margins(x=0.1)
    axis.set_ylim(0, 1.1 * axis.dataLim.y1)
    if len(result.arms) > 1:
        axis.legend(fontsize=7)


def _waits(result: Result) -> Figure:
    """Plot the time of a prefill against the time of a decode step beside it, one point per budget, and both alone."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axis, [subject] = figure.subplots(), result.subjects
    for number, arm in enumerate(result.arms):
        stalls, waits = result.values(subject, arm, "p95"), result.values(subject, arm, "prefill")
        if stalls and waits:
            colour, label = COLOURS[number % len(COLOURS)], arm.removeprefix("beside a ")
            axis.plot([1000 * median(stalls)], [median(waits)], "o", color=colour, label=label)
        elif stalls:
            axis.axvline(1000 * median(stalls), color=GREY, linewidth=0.8, label=f"steps {arm}")
        elif waits:
            axis.axhline(median(waits), color=GREY, linewidth=0.8, linestyle="--", label=arm.removeprefix("a "))
    axis.set_xlabel("95% of times between tokens, ms")
    axis.set_ylabel("the prefill, s")
    axis.set_xlim(left=0)
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=7)
    return figure


def _errorbar(axis: Axes, at: Sequence[float], found: Sequence[Spread], colour: str, label: str, **style: Any) -> None:
    middles = [each.middle for each in found]
    axis.errorbar(at, middles, yerr=reach(middles, found), marker="o", capsize=3, color=colour, label=label, **style)


SWAPS: dict[Swap, tuple[str, float]] = {"same-length": ("o", -0.13), "other-length": ("D", 0.13)}
"""The marker of each swap in a plot of effects, and its offset from the middle of the arm."""
SHADES: dict[Arm, str] = {
    "floor": "#8b8f96",
    "enforce": "#3d8f63",
    "reuse": "#d1443c",
    "stale": "#a98a2d",
    "plain": "#6d6ea8",
}
TINY = 1e-17
FONTS = "sans-serif"
INK = "#010203"
"""A placeholder for the text color of the page; no other part of a plot may use it."""
PAINTED = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
STYLE: Any = dict.fromkeys(PAINTED, INK) | {
    "font.family": FONTS,
    "font.size": 9.0,
    "svg.fonttype": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
}


class Measure(NamedTuple):
    """One panel: its title, whether its axis is logarithmic, and the worst case, mean and interval of an effect."""

    title: str
    logarithmic: bool
    worst: Callable[[Effect], float | None]
    mean: Callable[[Effect], float]
    interval: Callable[[Effect], Interval]


PANELS = (
    Measure(
        title="total variation",
        logarithmic=True,
        worst=lambda e: e.tv_max,
        mean=lambda e: e.tv_mean,
        interval=lambda e: e.tv_interval,
    ),
    Measure(
        title="KL divergence, nats",
        logarithmic=True,
        worst=lambda e: e.kl_max,
        mean=lambda e: e.kl_mean,
        interval=lambda e: e.kl_interval,
    ),
    Measure(
        title="decisions that changed",
        logarithmic=False,
        worst=lambda e: None,
        mean=lambda e: e.flip_rate,
        interval=lambda e: e.flip_interval,
    ),
)


def plot_effects(effects: Sequence[Effect], measurement: Measurement) -> str:
    """Plot the effects of one pair of reader and owner as inline SVG: arms side by side, with worst case and
    interval."""
    salt = {"svg.hashsalt": f"{effects[0].reader} {effects[0].owner}"}
    with rc_context(STYLE | salt):
        figure = Figure(figsize=(10.2, 2.9), layout="constrained")
        for axes, panel in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
            _panel(axes, panel, effects, measurement.noise if panel is PANELS[0] else 0.0)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(file.getvalue())


def _panel(axes: Axes, panel: Measure, effects: Sequence[Effect], noise: float) -> None:
    arms = [arm for arm in ARMS if any(effect.arm == arm for effect in effects)]
    zero = _zero(panel, effects, noise) if panel.logarithmic else 0.0
    for effect in effects:
        _point(axes=axes, panel=panel, effect=effect, x=arms.index(effect.arm) + SWAPS[effect.swap][1], zero=zero)
    if panel.logarithmic:
        _scale(axes, zero)
    else:
        axes.yaxis.set_major_formatter("{x:.0%}")
    if noise > 0:
        axes.axhline(noise, color="#8b8f96", linestyle=(0, (4, 3)), linewidth=0.9, zorder=1)
    axes.set_title(panel.title, loc="left", fontsize=9.5)
    axes.set_xticks(range(len(arms)), ["\n".join(ARMS[arm].name.rsplit(" ", 1)) for arm in arms])
    axes.set_xlim(-0.6, len(arms) - 0.4)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y", color="#8b8f96", alpha=0.22, linewidth=0.6)
    axes.set_axisbelow(True)


def _point(axes: Axes, panel: Measure, effect: Effect, x: float, zero: float) -> None:
    """Draw the worst case as a filled marker, and the interval of the mean as a bar with a tick at the mean."""
    colour, sign = SHADES[effect.arm], SWAPS[effect.swap][0]
    worst = panel.worst(effect)
    mean = panel.mean(effect)
    interval = panel.interval(effect)
    low, high = max(interval.low, zero), max(interval.high, zero)
    axes.plot([x, x], [low, high], color=colour, linewidth=2.4, alpha=0.5, solid_capstyle="butt", zorder=2)
    if worst is None:
        axes.plot([x], [mean], sign, color=colour, markersize=4.6, zorder=4)
        return
    if mean > 0:
        axes.plot([x], [max(mean, zero)], "_", color=colour, markersize=8, zorder=3)
    inside = "none" if worst == 0 else colour
    axes.plot([x], [max(worst, zero)], sign, color=colour, markerfacecolor=inside, markersize=4.6, zorder=4)


def _zero(panel: Measure, effects: Sequence[Effect], noise: float) -> float:
    """Where exact zeros are drawn on a logarithmic axis: a decade below the smallest value that is not zero."""
    sizes = [size for effect in effects for size in (panel.worst(effect), panel.mean(effect)) if size]
    least = min([*sizes, *([noise] if noise > 0 else [])], default=1e-6)
    return float(10.0 ** (floor(log10(max(least, TINY))) - 1))


def _scale(axes: Axes, zero: float) -> None:
    axes.set_yscale("log")
    top = max(axes.get_ylim()[1], 1.0)
    axes.set_ylim(zero / 2.5, top * 1.6)
    first, last = round(log10(zero)) + 1, floor(log10(top))
    step = max(1, (last - first) // 5)
    decades = list(range(last, first - 1, -step))[::-1]
    labels = ["0", *(_power(decade) for decade in decades)]
    axes.set_yticks([zero, *(10.0**decade for decade in decades)], labels)
    axes.minorticks_off()


def _power(decade: int) -> str:
    return f"{10.0**decade:g}" if -3 <= decade <= 3 else f"1e{decade}"


def _inline(svg: str) -> str:
    """The SVG element alone, in the color of the surrounding text, without references outside of the page."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = body.replace("*{stroke", ".plot *{stroke").replace(FONTS, "inherit")
    body = re.sub(r' id="[a-z0-9.]+_\d+"', "", body)
    body = re.sub(r"(\.\d\d)\d{3,}", r"\1", body)
    body = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', _opened, body, count=1)
    return body.replace(INK, "currentColor")


def _opened(found: re.Match[str]) -> str:
    return f'<svg class="plot" role="img" viewBox="{found[1]}" xmlns:xlink="http://www.w3.org/1999/xlink">'
