"""What a public sentence reveals, as tables: one row per reading mode and attack, and what each mode costs."""

from __future__ import annotations

from collections.abc import Iterator

from agentcho.display.text_table import TextTable
from agentcho.lab.leaks.result import Cost, LeaksResult, Row, Secrets

HEADS = ("whole secrets (95%)", "chance", "symbols", "chance", "bits (95%)", "of", "p", "beside the text", "verdict")


def sheets(found: LeaksResult) -> Iterator[TextTable]:
    """One table per kind of secret, and one of the costs of the modes."""
    for secrets in found.secrets:
        rows = tuple(_row(row) for row in found.rows if row.kind == secrets.kind)
        yield TextTable(_title(found, secrets), ("", "", *HEADS), rows, words=2)
    yield TextTable("first tokens, of a game of random words", ("", "milliseconds"), tuple(map(_cost, found.costs)))


def _title(found: LeaksResult, of: Secrets) -> str:
    symbols = f"{of.symbols} symbols of {of.options}, {of.entropy:.1f} bits"
    lengths = f"prompts of {of.lengths} different lengths"
    return f"{found.model}, {found.dtype}: {of.kind} ({symbols}; {lengths}; the sentence {found.sentence})"


def _row(row: Row) -> tuple[str, ...]:
    if row.unavailable is not None:
        return (row.way, row.attack, *[""] * (len(HEADS) - 1), row.verdict)
    share = f"{row.exact}/{row.tested} ({row.share.shown(_percent)})"
    bits = f"{row.bits:.2f} ({row.bits_interval.shown('{:.2f}'.format)})"
    symbols = f"{row.symbols / row.symbols_tested:.1%}"
    text = "" if row.text is None else f"{100 * row.text.secrets:+.1f}, {100 * row.text.symbols:+.1f} points"
    chances = f"{row.chance:.2%}", f"{row.symbols_chance:.1%}"
    ends = (f"{row.entropy:.1f}", _p(row.p), text, row.verdict)
    return (row.way, row.attack, share, chances[0], symbols, chances[1], bits, *ends)


def _cost(cost: Cost) -> tuple[str, str]:
    return cost.way, cost.spread.shown(1, 1000)


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _p(value: float) -> str:
    return "<1e-9" if value < 1e-9 else f"{value:.2g}"
