"""Plots of effects: arms side by side, worst case and interval, as SVG to stand in a page.

Drawn with matplotlib, imported when it is needed. Does not know: how effects were measured.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from math import floor, log10
from typing import TYPE_CHECKING, Any, NamedTuple

from agentcho.audit.measurement import Arm, Effect, Interval, Measurement, Swap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ARMS: dict[Arm, tuple[str, str]] = {
    "floor": ("same\ntwice", "nothing swapped: what is noise"),
    "enforce": ("enforced", "swapped behind audience encodings"),
    "reuse": ("reused", "swapped behind reused encodings: the leak"),
    "stale": ("encoded\nagain", "encoded again without the secret: staleness, no leak"),
    "plain": ("in plain\nsight", "swapped in the reader's own prompt: the most there could be"),
}
"""What an arm is called under a plot, and what it means."""

SWAPS: dict[Swap, tuple[str, float]] = {"same-length": ("o", -0.13), "other-length": ("D", 0.13)}
COLOURS: dict[Arm, str] = {
    "floor": "#8b8f96", "enforce": "#3d8f63", "reuse": "#d1443c", "stale": "#a98a2d", "plain": "#6d6ea8",
}  # fmt: skip
TINY = 1e-17
FONTS = "sans-serif"
INK = "#010203"
"""Stands for the colour of the page's own text; no other part of a plot may have it."""


class Measure(NamedTuple):
    """One panel: its title, whether its axis is logarithmic, and worst case, mean and interval of an effect."""

    title: str
    logarithmic: bool
    worst: Callable[[Effect], float | None]
    mean: Callable[[Effect], float]
    interval: Callable[[Effect], Interval]


PANELS = (
    Measure("total variation", True, lambda e: e.tv_max, lambda e: e.tv_mean, lambda e: e.tv_interval),
    Measure("KL divergence, nats", True, lambda e: e.kl_max, lambda e: e.kl_mean, lambda e: e.kl_interval),
    Measure(
        "decisions that changed", False, lambda e: None, lambda e: e.flips / max(e.decisions, 1),
        lambda e: e.flip_interval,
    ),
)  # fmt: skip


def effect_plot(effects: Sequence[Effect], measurement: Measurement) -> str:
    """The panels of one pair of reader and owner as SVG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: Any = {
        "font.family": FONTS, "font.size": 9.0, "svg.fonttype": "none",
        "svg.hashsalt": f"{effects[0].reader} {effects[0].owner}",
        "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
        "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6,
    }  # fmt: skip
    with rc_context(style):
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
        _point(axes, panel, effect, arms.index(effect.arm) + SWAPS[effect.swap][1], zero)
    if panel.logarithmic:
        _scale(axes, zero)
    else:
        axes.yaxis.set_major_formatter("{x:.0%}")
    if noise > 0:
        axes.axhline(noise, color="#8b8f96", linestyle=(0, (4, 3)), linewidth=0.9, zorder=1)
    axes.set_title(panel.title, loc="left", fontsize=9.5)
    axes.set_xticks(range(len(arms)), [ARMS[arm][0] for arm in arms])
    axes.set_xlim(-0.6, len(arms) - 0.4)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y", color="#8b8f96", alpha=0.22, linewidth=0.6)
    axes.set_axisbelow(True)


def _point(axes: Axes, panel: Measure, effect: Effect, x: float, zero: float) -> None:
    """The worst case as a filled sign; the mean's interval as a bar with a stroke at the mean."""
    colour, sign = COLOURS[effect.arm], SWAPS[effect.swap][0]
    worst, mean, interval = panel.worst(effect), panel.mean(effect), panel.interval(effect)
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
    """Where exact zeros stand on a logarithmic axis: a decade below the least that is not one."""
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
    """The drawing alone, in the colour of the text around it, without what a page must not load."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = body.replace("*{stroke", ".plot *{stroke").replace(FONTS, "inherit")
    body = re.sub(r' id="[a-z0-9.]+_\d+"', "", body)
    body = re.sub(r"(\.\d\d)\d{3,}", r"\1", body)
    body = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', _opened, body, count=1)
    return body.replace(INK, "currentColor")


def _opened(found: re.Match[str]) -> str:
    return f'<svg class="plot" role="img" viewBox="{found[1]}" xmlns:xlink="http://www.w3.org/1999/xlink">'


def pairs(measurement: Measurement) -> dict[tuple[str, str], list[Effect]]:
    """Effects by reader and owner, the largest through reused encodings first."""
    found: dict[tuple[str, str], list[Effect]] = {}
    for effect in measurement.effects:
        found.setdefault((effect.reader, effect.owner), []).append(effect)
    return dict(sorted(found.items(), key=lambda item: -_leak(item[1])))


def _leak(effects: Sequence[Effect]) -> float:
    return max((effect.tv_max for effect in effects if effect.arm == "reuse"), default=0.0)
