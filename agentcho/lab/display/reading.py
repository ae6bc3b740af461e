"""Recorded conversations in every reading mode, as tables, one row per mode."""

from __future__ import annotations

from collections.abc import Iterator

from agentcho.display.text_table import TextTable
from agentcho.lab.reading.result import DecisionsResult, Effect, Estimate, Exchange, FidelityResult, NearerBaseline, Row

FIDELITY = ("KL, nats a token (95%)", "same likeliest token", "nats more than baseline (95%)", "encoded", "ratio")
EFFECTS = ("games", "probability", "less baseline (95%)", "log-odds less baseline (95%)", "turned")
MOVED = ("games", "probability (95%)", "log-odds (95%)", "size of log-odds")


def fidelity_sheets(found: FidelityResult) -> Iterator[TextTable]:
    """One table per set, and one of how much nearer to the baseline one column is than another."""
    for subject in dict.fromkeys(row.subject for row in found.rows):
        own = [row for row in found.rows if row.subject == subject]
        title = f"{found.model}, {found.dtype}: {subject}, {own[0].games} conversations, {own[0].rows} tokens said"
        yield TextTable(title, ("", *FIDELITY), tuple(map(_row, own)))
        left = [f"{row.column}: {row.left_out}" for row in own if row.left_out]
        if left:
            yield TextTable(
                "conversations that could not be read this way", ("", ""), tuple((each, "") for each in left), 2
            )
    if found.steps:
        heads, title = ("", "", "KL less (95%)", "conversations"), f"nearer the baseline than {found.steps[0].first}"
        yield TextTable(title, heads, tuple(map(_step, found.steps)), words=2)


def decisions_sheets(found: DecisionsResult) -> Iterator[TextTable]:
    """One table per set and question of each mode beside the baseline, and one with the hidden text exchanged."""
    for subject, asked in dict.fromkeys((each.subject, each.question) for each in found.effects):
        title = f"{found.model}, {found.dtype}: {subject}, {found.reader}'s {asked} of {found.choice}"
        own = [each for each in found.effects if (each.subject, each.question) == (subject, asked)]
        heads = (f"{found.owner} was told", "", *EFFECTS)
        yield TextTable(title, heads, tuple((each.told, each.way, *effect_cells(each)) for each in own), words=2)
        also = [each for each in found.moved if (each.subject, each.question) == (subject, asked)]
        title = f"{subject}, {asked}: the same words in the open, what {found.owner} hides exchanged"
        if also:
            yield TextTable(title, ("", "", *MOVED), tuple(map(_exchanged, also)), words=2)
    if found.left_out:
        rows = tuple((why, str(count)) for why, count in found.left_out.items())
        yield TextTable("left out", ("", "times"), rows)


def shown(share: Estimate, digits: int = 4, sign: str = "", unit: float = 1.0) -> str:
    """A mean and its interval, as text."""
    told = f"{{:{sign}.{digits}f}}".format
    ends = share.span.shown(lambda value: told(unit * value))
    return f"{told(unit * share.value)} ({ends})"


def _row(row: Row) -> tuple[str, ...]:
    spent = str(row.encoded), f"{row.ratio:.2f}"
    return (row.column, *apart(row), *spent)


def apart(row: Row) -> tuple[str, str, str]:
    """The divergence, the share of equal likeliest tokens, and the nats above the baseline."""
    return shown(row.kl), f"{row.same.value:.1%}", shown(row.more, sign="+")


def _step(step: NearerBaseline) -> tuple[str, ...]:
    share = f"{step.share} of {step.games}"
    return (step.subject, step.second, *(shown(step.nearer, sign="+"), share))


def effect_cells(effect: Effect) -> tuple[str, ...]:
    """Conversations, the probability, its change in points, that of the log-odds, and changed choices."""
    changes = shown(effect.change, 2, "+", 100), shown(effect.odds, 3, "+")
    return (f"{effect.games}", f"{effect.mean.value:.1%}", *(*changes, f"{effect.turned}"))


def _exchanged(moved: Exchange) -> tuple[str, ...]:
    return (f"{moved.first} less {moved.second}", moved.way, *moved_cells(moved))


def moved_cells(moved: Exchange) -> tuple[str, ...]:
    """Conversations, points of probability, log-odds, and their size."""
    signed = shown(moved.change, 2, "+", 100), shown(moved.odds, 3, "+")
    return (str(moved.games), *signed, shown(moved.size, 3))
