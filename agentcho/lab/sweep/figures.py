"""Computes the figures of rows from the games of cells: means and paired differences.

A pair is one game (its seed and number) in two rows that play the same tasks. Independent of files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from statistics import mean
from typing import NamedTuple

from agentcho.lab.compare import pairs
from agentcho.lab.compare.comparison import Difference, Metric
from agentcho.lab.compare.pairs import Scores
from agentcho.lab.sweep import untested
from agentcho.lab.sweep.data import Effect, Row
from agentcho.lab.sweep.effects import Effects, Played
from agentcho.lab.sweep.grid import Cell
from agentcho.lab.sweep.plan import Sweep

UNITS = 1_000_000
"""More than the games of a cell: a unit's number is the index of its seed, or of its tasks if these are the same for
every seed, times this, plus the game's number."""


class Statistics(NamedTuple):
    """How scores are compared: `pairs.metrics` and `pairs.difference`, or their substitutes."""

    metrics: Callable[[Mapping[str, Scores], int, Mapping[str, str]], tuple[Metric, ...]]
    difference: Callable[[Mapping[int, float], Mapping[int, float], bool, int], Difference]


def statistics() -> Statistics:
    """The functions with intervals and tests if their library is installed, else the substitutes."""
    if find_spec("scipy") is None:
        return Statistics(untested.metrics, untested.difference)
    return Statistics(pairs.metrics, pairs.difference)


class Figures(NamedTuple):
    """The rows of a sweep, and their metrics and effects."""

    rows: tuple[Row, ...]
    metrics: tuple[Metric, ...]
    effects: tuple[Effect, ...]


def figures(sweep: Sweep, scores: Mapping[str, Scores], seed: int, by: Statistics) -> Figures:
    """All figures of a sweep; `scores` are by cell key and game. Seeded: the same scores give the same figures."""
    groups: dict[str, list[Cell]] = {}
    for cell in sweep.cells:
        groups.setdefault(row_name(cell), []).append(cell)
    played = {name: _played(sweep, cells) for name, cells in groups.items()}
    units = _units(sweep, groups, scores)
    scored = {name: tasks for name, tasks in played.items() if units[name]}
    rows = tuple(
        Row(name=name, values=dict(cells[0].row), reference=_reference(name, played[name], scored))
        for name, cells in groups.items()
    )
    references = {row.name: row.reference for row in rows if row.reference is not None and units[row.name]}
    found = by.metrics(units, seed, references)
    effects = Effects(rows=rows, units=units, played=played, difference=by.difference, seed=seed)
    return Figures(rows, found, tuple(effect for metric in found for effect in effects.of(metric.name)))


def row_name(cell: Cell) -> str:
    """The name of the row that a cell belongs to."""
    return " ".join(f"{axis}={value}" for axis, value in cell.row) or "all"


def _played(sweep: Sweep, cells: Sequence[Cell]) -> Played:
    return frozenset((cell.config.seed, *sweep.tasks[cell.key]) for cell in cells)


def _reference(name: str, tasks: Played, scored: Mapping[str, Played]) -> str | None:
    """The first row with scores that plays some of the same tasks; None if that is this row, or there is none."""
    first = next((other for other, theirs in scored.items() if theirs & tasks), name)
    return None if first == name else first


def _units(sweep: Sweep, rows: Mapping[str, Sequence[Cell]], scores: Mapping[str, Scores]) -> dict[str, Scores]:
    """The scores of each row by unit."""
    drawn = {cell.key: _drawn(cell, sweep) for cells in rows.values() for cell in cells}
    places = {each: place for place, each in enumerate(sorted(set(drawn.values())))}
    found = dict[str, Scores]()
    for name, cells in rows.items():
        units = defaultdict[int, list[Mapping[str, float]]](list)
        for cell in cells:
            for number, score in scores.get(cell.key, {}).items():
                units[places[drawn[cell.key]] * UNITS + number].append(score)
        found[name] = {unit: _averaged(games) for unit, games in units.items()}
    return found


def _drawn(cell: Cell, sweep: Sweep) -> tuple[str, int]:
    """The source of a cell's games: its tasks if they are the same for every seed, else its seed. Games that play one
    task with several seeds are no independent ones."""
    tasks, seed = sweep.tasks[cell.key], cell.config.seed
    others = (each for each in sweep.cells if each.config.seed != seed)
    shared = tasks.digest is not None and any(sweep.tasks[each.key] == tasks for each in others)
    return (f"{tasks.digest} {tasks.draws}", 0) if shared else ("", seed)


def _averaged(games: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """The mean of each score, over the games that have it."""
    if len(games) == 1:
        return games[0]
    names = dict.fromkeys(name for game in games for name in game)
    return {name: mean(game[name] for game in games if name in game) for name in names}
