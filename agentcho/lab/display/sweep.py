"""Shows a sweep in the terminal: the games to play, the table of rows, the effect of each option, and what was not
played.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, TextIO

from rich.cells import cell_len

from agentcho.audit.measurement import Interval
from agentcho.audit.wording import many
from agentcho.display.safe import inline, visible
from agentcho.display.text_table import TextTable, plain
from agentcho.lab.compare.comparison import Difference, Metric
from agentcho.lab.display.compare import UNSCORED
from agentcho.lab.sweep.data import UNTESTED, Effect, Row
from agentcho.lab.sweep.plan import Plan, Sweep
from agentcho.lab.sweep.result import SweepResult

FEW = 20
"""With fewer pairs, bootstrap intervals are too narrow."""
WIDEST = 28
SHORTEST = 10
UNCUT = 1_000_000
"""The largest width of a value in a table, the smallest if the table is too wide, and a width that cuts nothing."""
Say = Callable[[float], str]


def text(found: SweepResult, width: int | None = None) -> str:
    """The whole sweep as aligned text. `width`: that of the terminal, to which values are cut (None: they are not)."""
    parts = [heading(found), "", _fitting(partial(_rows, found), width)]
    if found.effects:
        parts += ["", _fitting(partial(_effects, found), width)]
    told = notes(found)
    return "\n".join([*parts, "", *told] if told else parts)


def sheets(found: SweepResult) -> tuple[TextTable, ...]:
    """The tables with uncut values; the metric of each row is in the first column."""
    made = [_rows(found, UNCUT), *([_effects(found, UNCUT)] if found.effects else [])]
    return tuple(each.sheet("metric") for each in made)


def show(found: SweepResult, out: TextIO, width: int | None = None) -> None:
    """Print the sweep."""
    print(visible(text(found, width)), file=out)


def heading(found: SweepResult) -> str:
    """What was swept, in one line."""
    seeds = list(dict.fromkeys(cell.seed for cell in found.cells))
    alike = [f"{name}={value}" for name, value in found.rows[0].values.items() if name not in found.varied]
    cells = f"{many(len(found.cells), 'cell')} of {many(found.games, 'game')}"
    parts = [found.scenario, cells, "paired by task and seed", f"seed {', '.join(map(str, seeds))}", *alike]
    return inline(" · ".join(parts))


class Blocks(NamedTuple):
    """A table of named blocks of rows (an empty name is not shown)."""

    title: str
    heads: tuple[str, ...]
    blocks: Sequence[tuple[str, Sequence[tuple[str, ...]]]]
    words: int

    def lines(self) -> list[str]:
        """Aligned lines. The names of blocks stand above their rows and widen no column."""
        rows = tuple(row for _, block in self.blocks for row in block)
        _, heads, *body = plain(TextTable("-", self.heads, rows, self.words)).splitlines()
        left = iter(body)
        found = [*filter(None, [inline(self.title)]), heads]
        for name, block in self.blocks:
            found += [*filter(None, [inline(name)]), *islice(left, len(block))]
        return found

    def sheet(self, head: str) -> TextTable:
        """A single table with the names of blocks in a first column with this head."""
        rows = [(name if at == 0 else "", *row) for name, block in self.blocks for at, row in enumerate(block)]
        return TextTable(self.title, (head, *self.heads), tuple(rows), self.words + 1)


def _fitting(made: Callable[[int], Blocks], width: int | None) -> str:
    """A table whose values are cut only as much as needed to fit into the terminal."""
    rooms = [WIDEST] if width is None else range(WIDEST, SHORTEST - 1, -1)
    for room in rooms:
        lines = made(room).lines()
        if width is None or max(map(cell_len, lines)) <= width:
            break
    return "\n".join(lines)


def _values(row: Row, axes: Sequence[str], room: int) -> tuple[str, ...]:
    return tuple(_cut(row.values.get(name, "all"), room) for name in axes)


def _cut(word: str, room: int) -> str:
    """Shorten a word to `room` characters: keep its beginning and its end, which tell paths and versions apart."""
    if len(word) <= room:
        return word
    head = (room - 1) // 3
    return f"{word[:head]}…{word[len(word) - (room - 1 - head) :]}"


def _rows(found: SweepResult, room: int) -> Blocks:
    """One line per row, one block per metric. The number of finished games is shown if it differs between rows."""
    axes = found.varied or ("",)
    games = [_games(found, row) for row in found.rows]
    odd = len(set(games)) > 1 or " " in games[0]
    begun = [(*_values(row, axes, room), *([told] if odd else [])) for row, told in zip(found.rows, games, strict=True)]
    blocks = [
        (_titled(metric), [(*names, *_figures(metric, row)) for names, row in zip(begun, found.rows, strict=True)])
        for metric in found.metrics
    ]
    heads = (*axes, *(["games"] if odd else []), "mean", "95 %", "change", "95 %", "Holm p")
    return Blocks("", heads, blocks or [("", [(*names, "no score", "", "", "", "") for names in begun])], len(axes))


def _titled(metric: Metric) -> str:
    return f"{metric.name}, %" if metric.binary else metric.name


def _games(found: SweepResult, row: Row) -> str:
    """The number of finished games of a row, and the total if some are missing."""
    cells = found.of(row)
    over = sum(cell.over for cell in cells)
    of = sum(cell.of for cell in cells)
    return str(over) if over == of else f"{over} of {of}"


def _figures(metric: Metric, row: Row) -> tuple[str, ...]:
    mean = metric.means[row.name]
    say = _saying(metric)
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
    """An interval; empty if there were too few games for one."""
    return "" if span.method.endswith("no interval") else f"{say(span.low)} to {say(span.high)}"


def _saying(metric: Metric) -> Say:
    """The number format of a metric: percent if it is binary, else with fewer digits the larger its largest mean is."""
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


def _effects(found: SweepResult, room: int) -> Blocks:
    """The effect of each option alone, one block per metric."""
    blocks = [(_titled(m), [_effect(e, m, room) for e in found.effects if e.metric == m.name]) for m in found.metrics]
    heads = ("option", "value", "less", "games", "change", "95 %", "Holm p")
    return Blocks("each option by itself, over all others", heads, [each for each in blocks if each[1]], 3)


def _effect(effect: Effect, metric: Metric, room: int) -> tuple[str, ...]:
    names = effect.axis, _cut(effect.value, room), _cut(effect.reference, room)
    return *names, str(effect.found.games), *_change(effect.found, _saying(metric))


def notes(found: SweepResult) -> tuple[str, ...]:
    """Notes: that nothing is scored; what was not played, failed or has no score, by cell."""
    scored = bool(found.metrics) or all(cell.over == cell.without for cell in found.cells)
    told = [] if scored else [UNSCORED]
    told += [f"{cell.name}: {cell.trouble}" for cell in found.cells if cell.trouble]
    told += [f"{cell.name}: {_without(cell.without)}" for cell in found.cells if cell.without]
    pairs = [each.games for metric in found.metrics if not metric.binary for each in metric.differences.values()]
    if (
        pairs
        and min(pairs) < FEW
        and any(each.test != UNTESTED for m in found.metrics for each in m.differences.values())
    ):
        told.append(f"intervals and p-values of fewer than {FEW} pairs are rough: play more games")
    references = {row.reference for row in found.rows if row.reference is not None}
    if len([row for row in found.rows if row.reference is None]) > 1 and references:
        told.append("rows with different tasks are compared with a first row of their own")
    return tuple(map(inline, told))


def _without(count: int) -> str:
    return f"{count} ended early because of a limit and {'is' if count == 1 else 'are'} not in any mean"


def planned(sweep: Sweep, plan: Plan, width: int | None = None) -> str:
    """What a sweep would play: each cell with its games, the finished ones, and those to play."""
    names = [axis.name for axis in sweep.axes if len(axis.values) > 1]
    counted = [(len(cell.config.numbers), len(plan.there[cell.key].over), len(plan.left(cell))) for cell in sweep.cells]

    def made(room: int) -> Blocks:
        values = [tuple(_cut(cell.values[name], room) for name in names) for cell in sweep.cells]
        rows = [(*its, *map(str, numbers)) for its, numbers in zip(values, counted, strict=True)]
        return Blocks(sweep.name, (*names, "games", "over", "to play"), [("", rows)], len(names))

    return visible("\n".join([_fitting(made, width), "", *counts(sweep, plan)]))


def counts(sweep: Sweep, plan: Plan) -> list[str]:
    """The amount of games to play, and the models to load for them, as text."""
    games = sum(len(cell.config.numbers) for cell in sweep.cells)
    over = plan.over(sweep.cells)
    loaded = [group[0].config.model for group in sweep.cells_by_network() if any(map(plan.left, group))]
    models = f"; models, one after the other: {', '.join(map(inline, loaded))}" if loaded else ""
    whole = f"{many(len(sweep.cells), 'cell')}, {many(games, 'game')}: {over} {'is' if over == 1 else 'are'} over, "
    whole += f"{games - over} to play{models}"
    return [whole, *changes(plan)]


def changes(plan: Plan) -> list[str]:
    """How the grid differs from the one that the folder was begun with, as text."""
    told = []
    if plan.change.added:
        told.append(f"new in the grid: {_listed(plan.change.added)}")
    if plan.change.left:
        told.append(f"no longer in the grid, kept on disk: {_listed(plan.change.left)}")
    return told


def _listed(names: Sequence[str]) -> str:
    """The first three names, and the number of others."""
    first = "; ".join(map(inline, names[:3]))
    return first if len(names) <= 3 else f"{first}; and {len(names) - 3} more"
