"""Shows a comparison in the terminal: tables of metrics, fidelity, costs, and a judge's preferences."""

from __future__ import annotations

from typing import TextIO

from agentcho.audit.wording import many
from agentcho.display.safe import visible
from agentcho.display.text_table import TextTable, plain
from agentcho.lab.compare.comparison import Comparison, Metric, Preference

TRADED = "fidelity against cost"
FRONT = "on the front"
"""Marks a column if no other is at once nearer to the baseline and cheaper."""
UNSCORED = (
    "no metric: no game has a score. Give the scenario a method score(self, outcome) that returns a number by name, "
    "such as {'won': 1.0}"
)
"""Shown instead of a table of scores, also by a sweep."""


def text(found: Comparison) -> str:
    """The whole comparison as aligned text."""
    parts = [heading(found), *(f"\n{plain(sheet)}" for sheet in sheets(found))]
    told = notes(found)
    return "\n".join([*parts, "", *told] if told else parts)


def show(found: Comparison, out: TextIO) -> None:
    """Print the comparison."""
    print(visible(text(found)), file=out)


def heading(found: Comparison) -> str:
    """What was compared, in one line."""
    request = found.request
    first = f"{request.scenario} · {many(request.games, 'game')}, paired by task and seed · seed {request.seed}"
    model = request.model.get("name") or request.model.get("model") or ""
    return f"{first} · {model}" if model else first


def sheets(found: Comparison) -> tuple[TextTable, ...]:
    """The tables that have rows."""
    made = (_metrics(found), _fidelity(found), _costs(found), _traded(found), _preferences(found))
    return tuple(sheet for sheet in made if sheet.rows)


def _metrics(found: Comparison) -> TextTable:
    rows = [row for metric in found.metrics for row in _rows(metric, found.names)]
    heads = ("metric", "column", "mean, 95 %", f"less {found.names[0]}, 95 %", "p", "Holm p")
    return TextTable("metrics", heads, tuple(rows), words=2)


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


def _fidelity(found: Comparison) -> TextTable:
    """The divergence of a column's next-token distributions from the baseline's, beside its main score and its time,
    with a verdict; one row per column."""
    score = found.score
    rows = tuple(
        (
            name,
            *([score.mean(name)] if score else []),
            held.shown(),
            f"{100 * held.agree:.1f}%",
            f"x {cost.seconds_ratio.shown()}" if (cost := found.costs.get(name)) else "",
            found.verdict(name),
        )
        for name in found.names
        if (held := found.fidelity.get(name))
    )
    scored = [score.name] if score else []
    heads = ("column", *scored, "KL to baseline, 95 %", "same token", "end to end", "verdict")
    return TextTable(f"on the words of {found.names[0]}, forced", heads, rows)


def _costs(found: Comparison) -> TextTable:
    """The costs of the same words, one row per column."""
    rows = tuple(
        (name, str(sum(cost.encoded)), f"x {cost.ttft_ratio.shown()}", f"x {cost.seconds_ratio.shown()}")
        for name in found.names
        if (cost := found.costs.get(name))
    )
    heads = ("column", "tokens encoded", "first token", "end to end")
    return TextTable(f"costs of the words of {found.names[0]}, times as ratios to {found.names[0]}", heads, rows)


def _traded(found: Comparison) -> TextTable:
    """Fidelity against cost, one row per column, with a mark on the Pareto front; only if methods of reuse are
    compared."""
    score = found.score
    front = found.front
    rows = tuple(
        (
            name,
            *([score.mean(name)] if score else []),
            f"{held.kl:.4f}",
            f"{100 * held.agree:.1f}%",
            str(sum(cost.encoded)),
            f"x {cost.ttft_ratio.shown()}",
            FRONT if name in front else "",
        )
        for name in (found.names if found.methods else ())
        if (held := found.fidelity.get(name)) and (cost := found.costs.get(name))
    )
    scored = [score.name] if score else []
    heads = ("column", *scored, "KL, nats a token", "same token", "tokens encoded", "first token", "")
    return TextTable(TRADED, heads, rows)


def _preferences(found: Comparison) -> TextTable:
    """The judge's verdicts, one row per column."""
    rows = tuple((name, *_preference(told)) for name, told in found.preferences.items())
    judge = found.judge.get("model", "the judge")
    title = f"texts preferred by {judge} to those of {found.names[0]}, asked in both orders"
    return TextTable(title, ("column", "wins", "losses", "ties", "wins of decided, 95 %", "p"), rows)


def _preference(told: Preference) -> tuple[str, ...]:
    share = f"{told.share:.1%} ({told.span.shown('{:.1%}'.format)})"
    return f"{told.wins} of {told.games}", str(told.losses), str(told.ties), share, _p(told.p)


def notes(found: Comparison) -> tuple[str, ...]:
    """Notes below the tables: that nothing is scored, games that are in no pair, tool calls."""
    lost = {name: count for name, count in found.without.items() if count}
    scored = bool(found.metrics) or all(count == found.request.games for count in found.without.values())
    told = [] if scored else [UNSCORED]
    told += [f"{name}: {_without(count)}" for name, count in lost.items()]
    if any(sheet.title == TRADED for sheet in sheets(found)):
        told.append(f"{FRONT}: no other column is at once as near to the baseline and as cheap in tokens")
    if found.calls:
        counts = ", ".join(f"{found.calls.get(name, 0)} in {name}" for name in found.names)
        told.append(
            f"each column made its own tool calls, and the tools may have answered differently; calls: {counts}"
        )
    return tuple(told)


def _without(count: int) -> str:
    return f"{many(count, 'game')} ended without an outcome and {'is' if count == 1 else 'are'} not in any pair"
