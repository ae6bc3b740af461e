"""A comparison in the terminal: tables of metrics, fidelity, costs, and of what a judge prefers. Does not know: how it
was found."""

from __future__ import annotations

from typing import TextIO

from agentcho.display.safe import visible
from agentcho.display.sheet import Sheet, plain
from agentcho.lab.compare.comparison import Comparison, Metric, Preference


def text(found: Comparison) -> str:
    """All of it, as aligned text."""
    request = found.request
    first = f"{request.scenario} · {request.games} games, paired by task and seed · seed {request.seed}"
    model = request.model.get("name") or request.model.get("model") or ""
    parts = [f"{first} · {model}" if model else first, "", plain(_metrics(found))]
    for sheet, told in ((_fidelity, found.fidelity), (_costs, found.costs), (_preferences, found.preferences)):
        parts += ["", plain(sheet(found))] if told else []
    return "\n".join([*parts, *_notes(found)])


def show(found: Comparison, out: TextIO) -> None:
    """Print it."""
    print(visible(text(found)), file=out)


def _metrics(found: Comparison) -> Sheet:
    rows = [row for metric in found.metrics for row in _rows(metric, found.names)]
    heads = ("metric", "column", "mean, 95 %", f"less {found.names[0]}, 95 %", "p", "Holm p")
    return Sheet("metrics", heads, tuple(rows), words=2)


def _rows(metric: Metric, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [
        (
            metric.name if name == names[0] else "",
            name,
            metric.mean(name),
            metric.difference(name),
            *_tested(metric, name),
        )
        for name in names
    ]


def _tested(metric: Metric, name: str) -> tuple[str, str]:
    found = metric.differences.get(name)
    return (_p(found.p), _p(found.holm)) if found and found.games else ("", "")


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _fidelity(found: Comparison) -> Sheet:
    """How far a column's next-token distributions are from the baseline's, a row a column."""
    rows = tuple(
        (name, held.shown(), f"{100 * held.agree:.1f}%") for name in found.names if (held := found.fidelity.get(name))
    )
    return Sheet(f"on the words of {found.names[0]}, forced", ("column", "KL to baseline, 95 %", "same token"), rows)


def _costs(found: Comparison) -> Sheet:
    """What the same words cost, a row a column."""
    rows = tuple(
        (name, str(sum(cost.encoded)), f"x {cost.ttft_ratio.shown()}", f"x {cost.seconds_ratio.shown()}")
        for name in found.names
        if (cost := found.costs.get(name))
    )
    heads = ("column", "tokens encoded", "first token", "end to end")
    return Sheet(f"costs of the words of {found.names[0]}, times as ratios to {found.names[0]}", heads, rows)


def _preferences(found: Comparison) -> Sheet:
    """What the judge says, a row a column."""
    rows = tuple((name, *_preference(told)) for name, told in found.preferences.items())
    judge = found.judge.get("model", "the judge")
    title = f"texts preferred by {judge} to those of {found.names[0]}, asked in both orders"
    return Sheet(title, ("column", "wins", "losses", "ties", "wins of decided, 95 %", "p"), rows)


def _preference(told: Preference) -> tuple[str, ...]:
    share = f"{told.share:.1%} ({told.span.shown('{:.1%}'.format)})"
    return f"{told.wins} of {told.games}", str(told.losses), str(told.ties), share, _p(told.p)


def _notes(found: Comparison) -> list[str]:
    """Notes below the tables: games that are in no pair, and calls of tools."""
    lost = {name: count for name, count in found.without.items() if count}
    notes = [f"{name}: {count} games ended without an outcome and are in no pair" for name, count in lost.items()]
    if found.calls:
        counts = ", ".join(f"{name} {found.calls.get(name, 0)}" for name in found.names)
        notes.append(f"each column called its own tools, which may have answered otherwise: calls of {counts}")
    return ["", *notes] if notes else []
