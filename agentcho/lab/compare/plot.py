"""Draws a comparison: every metric by column with its interval, and how far words are from the baseline's against
the tokens that were encoded. Does not know: files of results, tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from agentcho.lab.compare.comparison import Comparison, Metric


def plot(found: Comparison, file: Path) -> None:
    """Write a picture; its ending says of which kind."""
    panels = len(found.metrics) + bool(found.fidelity and found.costs)
    figure = Figure(figsize=(2.8 + 2.7 * max(1, panels), 1.3 + 0.42 * len(found.names) + 1.2), layout="constrained")
    axes = figure.subplots(1, max(1, panels), squeeze=False)[0]
    for axis, metric in zip(axes, found.metrics, strict=False):
        _metric(axis, metric, found.names, labelled=metric is found.metrics[0])
    if found.fidelity and found.costs:
        _fidelity(axes[-1], found)
    figure.suptitle(f"{found.request.scenario}: {found.request.games} games, paired", fontsize=10)
    figure.savefig(file, dpi=150)


def _metric(axis: Any, metric: Metric, names: tuple[str, ...], labelled: bool) -> None:
    places = range(len(names), 0, -1)
    means = [metric.means[name] for name in names]
    values = [mean.value for mean in means]
    reach = [[m.value - m.span.low for m in means], [m.span.high - m.value for m in means]]
    axis.barh(places, values, color=["#8a8f98", *["#4477aa"] * (len(names) - 1)], height=0.6)
    axis.errorbar(
        values,
        list(places),
        xerr=[[max(0.0, r) for r in side] for side in reach],
        fmt="none",
        ecolor="black",
        capsize=3,
    )
    axis.set_yticks(list(places), names if labelled else [""] * len(names), fontsize=8)
    axis.set_title(metric.name, fontsize=9)
    axis.set_xlim(min(0.0, *(mean.span.low for mean in means)), max(1.0, *(mean.span.high for mean in means)) * 1.02)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.tick_params(axis="x", labelsize=8)


def _fidelity(axis: Any, found: Comparison) -> None:
    """Tokens encoded, relative to the first column, against the divergence from the baseline."""
    first = sum(found.costs[found.names[0]].encoded)
    for name in found.names:
        share, held = sum(found.costs[name].encoded) / first, found.fidelity[name]
        low, high = max(0.0, held.kl - held.span.low), max(0.0, held.span.high - held.kl)
        axis.errorbar([share], [held.kl], yerr=[[low], [high]], fmt="o", capsize=3, label=name)
    axis.set_xlabel("tokens encoded, of the first column's", fontsize=8)
    axis.set_title("KL from baseline, nats a token", fontsize=9)
    axis.set_ylim(bottom=0)
    axis.margins(x=0.2)
    axis.legend(fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axis.tick_params(labelsize=8)
