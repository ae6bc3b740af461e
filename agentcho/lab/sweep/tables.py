"""Converts the result of a sweep to tables, for data frames and for display."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from agentcho.errors import ConfigError
from agentcho.games.results.arrow import Kind
from agentcho.games.results.table import Table, column
from agentcho.lab.compare.comparison import Metric
from agentcho.lab.sweep.data import Row, SweepData

Which = Literal["figures", "games"]
KINDS: dict[str, Kind] = {"metric": "text", "what": "text", "reference": "text", "method": "text", "test": "text"}
KINDS |= {"value": "number", "low": "number", "high": "number", "p": "number", "holm": "number", "seconds": "number"}
KINDS |= {"games": "whole", "seed": "whole", "game": "whole", "ended": "text"}


def table(found: SweepData, which: str) -> Table:
    """One row per figure, or one row per game. `ConfigError`: unknown table."""
    if which not in ("figures", "games"):
        raise ConfigError(f"unknown table {which!r}; give figures or games")
    rows = [*(found.figures() if which == "figures" else found.played())]
    axes = set(found.axes)
    names = dict.fromkeys(name for row in rows for name in row)
    return Table([_column(name, [row.get(name) for row in rows], name in axes) for name in names])


def _column(name: str, values: Sequence[Any], of_axis: bool) -> Any:
    if of_axis:
        return column(name, _typed(values))
    return column(name, values, "number" if name.startswith("score.") else KINDS.get(name))


def _typed(values: Sequence[str | None]) -> Sequence[Any]:
    """The values of an option as numbers or flags if all of them are, else as strings."""
    try:
        read = [None if value is None else json.loads(value) for value in values]
    except ValueError:
        return values
    flags = all(value is None or isinstance(value, bool) for value in read)
    numbers = all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in read)
    return read if flags or numbers else values


def means(found: SweepData) -> Table:
    """One row per metric and row, as text."""
    rows = [_words(found, metric, row) for metric in found.metrics for row in found.rows]
    heads = ("metric", *found.varied, "games", "mean, 95 %", "change, 95 %")
    return Table([column(head, [row[place] for row in rows], "text") for place, head in enumerate(heads)])


def _words(found: SweepData, metric: Metric, row: Row) -> tuple[str, ...]:
    games = sum(cell.over for cell in found.of(row)), sum(cell.of for cell in found.of(row))
    told = str(games[0]) if games[0] == games[1] else f"{games[0]} of {games[1]}"
    values = (row.values[axis] for axis in found.varied)
    return metric.name, *values, told, metric.mean(row.name), metric.difference(row.name)
