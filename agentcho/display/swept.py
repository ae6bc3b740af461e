"""A sweep in the terminal: what there is to play, the table of its rows, what each option does by itself, and what was
not played. Does not know: how it was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TextIO

from rich.cells import cell_len

from agentcho.audit.measurement import Interval
from agentcho.display.safe import inline, visible
from agentcho.display.sheet import Sheet, plain
from agentcho.lab.compare.comparison import Difference, Metric
from agentcho.lab.sweep.plan import Plan, Sweep
from agentcho.lab.sweep.result import UNTESTED, Effect, Row, SweepResult

WIDEST, SHORTEST = 28, 10
"""So many letters a value has at most in a table, and at least where the table is too wide."""
Say = Callable[[float], str]


def text(found: SweepResult, width: int | None = None) -> str:
    """All of it, as aligned text. `width`: of the terminal, for which values are cut short (None: they are whole)."""
    parts = [_heading(found), "", _fitting(partial(_rows, found), width)]
    if found.effects:
        parts += ["", _fitting(partial(_effects, found), width)]
    return "\n".join([*parts, *_notes(found)])


def show(found: SweepResult, out: TextIO, width: int | None = None) -> None:
    """Print it."""
    print(visible(text(found, width)), file=out)


def _heading(found: SweepResult) -> str:
    seeds = list(dict.fromkeys(cell.seed for cell in found.cells))
    alike = [f"{name}={value}" for name, value in found.rows[0].values.items() if name not in found.varied]
    cells = f"{len(found.cells)} {'cell' if len(found.cells) == 1 else 'cells'} of {found.games} games"
    parts = [found.scenario, cells, "paired by task and seed", f"seed {', '.join(map(str, seeds))}", *alike]
    return inline(" · ".join(parts))


def _fitting(made: Callable[[int], Sheet], width: int | None) -> str:
    """A sheet whose values are cut as little as it takes to fit into the terminal."""
    rooms = [WIDEST] if width is None else range(WIDEST, SHORTEST - 1, -1)
    for room in rooms:
        sheet = made(room)
        lines = plain(sheet).splitlines() if sheet.title else [line[2:] for line in plain(sheet).splitlines()[1:]]
        if width is None or max(map(cell_len, lines)) <= width:
            break
    return "\n".join(lines)


def _values(row: Row, axes: Sequence[str], room: int) -> tuple[str, ...]:
    first, *others = (_cut(row.values.get(name, "all"), room) for name in axes)
    return f"  {first}", *others


def _cut(word: str, room: int) -> str:
    """A word in so many letters: its beginning and its end, which tell paths and versions apart."""
    if len(word) <= room:
        return word
    head = (room - 1) // 3
    return f"{word[:head]}…{word[len(word) - (room - 1 - head) :]}"


def _rows(found: SweepResult, room: int) -> Sheet:
    """A row a row, and a block of them a metric, below its name."""
    axes, rows = found.varied or ("",), list[tuple[str, ...]]()
    for metric in found.metrics:
        rows.append((_titled(metric), *[""] * (len(axes) + 5)))
        for row in found.rows:
            rows.append((*_values(row, axes, room), _games(found, row), *_figures(metric, row)))
    if not rows:
        rows = [(*_values(row, axes, room), _games(found, row), "no score", "", "", "", "") for row in found.rows]
    heads = (f"  {axes[0]}", *axes[1:], "games", "mean", "95 %", "change", "95 %", "Holm p")
    return Sheet("", heads, tuple(rows), words=len(axes))


def _titled(metric: Metric) -> str:
    return f"{metric.name}, %" if metric.binary else metric.name


def _games(found: SweepResult, row: Row) -> str:
    """How many games of a row are over, and of how many, where that is not all of them."""
    cells = found.of(row)
    over, of = sum(cell.over for cell in cells), sum(cell.of for cell in cells)
    return str(over) if over == of else f"{over} of {of}"


def _figures(metric: Metric, row: Row) -> tuple[str, ...]:
    mean, say = metric.means[row.name], _saying(metric)
    if not mean.games:
        return "none", "", "", "", ""
    own = say(mean.value), _span(mean.span, say)
    if row.reference is None:
        return *own, "first", "", ""
    return *own, *_change(metric.differences.get(row.name), say)


def _change(found: Difference | None, say: Say) -> tuple[str, ...]:
    if found is None or not found.games:
        return "no pair", "", ""
    tested = "" if found.test == UNTESTED else _p(found.holm)
    return _signed(found.value, say), _span(found.span, lambda value: _signed(value, say)), tested


def _span(span: Interval, say: Say) -> str:
    """An interval; nothing where there were too few games for one."""
    return "" if span.method.endswith("no interval") else f"{say(span.low)} to {say(span.high)}"


def _saying(metric: Metric) -> Say:
    """Percent of games for a metric that is 0 or 1; else with as many digits as its largest mean leaves room for."""
    if metric.binary:
        return lambda value: f"{100 * value:.0f}"
    largest = max((abs(mean.value) for mean in metric.means.values() if mean.games), default=0.0)
    digits = 0 if largest >= 1000 else 1 if largest >= 100 else 2
    return lambda value: f"{value:.{digits}f}"


def _signed(value: float, say: Say) -> str:
    told = say(value)
    return told if told.startswith("-") or not told.strip("0.") else f"+{told}"


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _effects(found: SweepResult, room: int) -> Sheet:
    """What each option does by itself, a block a metric."""
    rows = list[tuple[str, ...]]()
    for metric in found.metrics:
        mine = [effect for effect in found.effects if effect.metric == metric.name]
        rows += [(_titled(metric), *[""] * 6)] if mine else []
        rows += [_effect(each, _saying(metric), room) for each in mine]
    heads = ("  option", "value", "less", "games", "change", "95 %", "Holm p")
    return Sheet("each option by itself, over all others", heads, tuple(rows), words=3)


def _effect(effect: Effect, say: Say, room: int) -> tuple[str, ...]:
    names = f"  {effect.axis}", _cut(effect.value, room), _cut(effect.reference, room)
    return *names, str(effect.found.games), *_change(effect.found, say)


def _notes(found: SweepResult) -> list[str]:
    """What was not played, failed or has no score, cell by cell."""
    notes = [f"{cell.name}: {cell.trouble}" for cell in found.cells if cell.trouble]
    notes += [
        f"{cell.name}: {cell.without} ended early by a limit, and are in no mean"
        for cell in found.cells
        if cell.without
    ]
    references = {row.reference for row in found.rows if row.reference is not None}
    if len([row for row in found.rows if row.reference is None]) > 1 and references:
        notes.append("rows that play other tasks have a first row of their own")
    return ["", *map(inline, notes)] if notes else []


def planned(sweep: Sweep, plan: Plan, width: int | None = None) -> str:
    """What a sweep would play: each cell with its games, those that are over, and those that are left."""
    names = [axis.name for axis in sweep.axes if len(axis.values) > 1]

    def sheet(room: int) -> Sheet:
        rows = tuple(
            (
                *(_cut(cell.values[name], room) for name in names),
                str(len(cell.config.numbers)),
                str(len(plan.there[cell.key].over)),
                str(len(plan.left(cell))),
            )
            for cell in sweep.cells
        )
        return Sheet(inline(sweep.name), (*names, "games", "over", "to play"), rows, words=len(names))

    return visible("\n".join([_fitting(sheet, width), "", *counts(sweep, plan)]))


def counts(sweep: Sweep, plan: Plan) -> list[str]:
    """How much there is to play, in words, and what is to be loaded for it."""
    games, over = sum(len(cell.config.numbers) for cell in sweep.cells), plan.over(sweep.cells)
    loaded = [group[0].config.model for group in sweep.cells_by_network() if any(map(plan.left, group))]
    models = f"; models, one after the other: {', '.join(map(inline, loaded))}" if loaded else ""
    whole = f"{len(sweep.cells)} cells, {games} games: {over} are over, {games - over} to play{models}"
    return [whole, *changes(plan)]


def changes(plan: Plan) -> list[str]:
    """How the grid differs from the one that the folder was begun with, in words."""
    told = []
    if plan.change.added:
        told.append(f"new in the grid: {_listed(plan.change.added)}")
    if plan.change.left:
        told.append(f"no more in the grid, kept on disk: {_listed(plan.change.left)}")
    return told


def _listed(names: Sequence[str]) -> str:
    """The first of many names, and how many there are."""
    first = "; ".join(map(inline, names[:3]))
    return first if len(names) <= 3 else f"{first}; and {len(names) - 3} more"
