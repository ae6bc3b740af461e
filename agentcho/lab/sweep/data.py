"""The fields of a sweep's result in a versioned format, `agentcho-sweep/1`, and what is derived from them. Independent
of tables and plots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from agentcho.lab.compare.comparison import Difference, Metric
from agentcho.records.frozen import Frozen

UNTESTED = "not tested"
"""Replaces the name of a test if the library for tests is not installed; p is meaningless then."""


class GameResult(Frozen):
    """One game that is over. `ended`: the limit or error that ended it early."""

    number: int
    score: dict[str, float]
    ended: str | None
    seconds: float


class CellResult(Frozen):
    """One cell: its values by axis, its games by number, how many of them failed, how many were not played, and why
    none could be (`error`). `records` are its folders, relative to the sweep's."""

    values: dict[str, str]
    row: str
    seed: int
    games: tuple[GameResult, ...]
    failed: int
    left: int
    error: str | None
    records: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its values as text."""
        return " ".join(f"{axis}={value}" for axis, value in self.values.items())

    @property
    def over(self) -> int:
        """The number of games that ended without an error."""
        return len(self.games) - self.failed

    @property
    def of(self) -> int:
        """The number of its games, played or not."""
        return len(self.games) + self.left

    @property
    def without(self) -> int:
        """The number of games that a limit ended early: they have no score."""
        return sum(game.ended is not None for game in self.games) - self.failed

    @property
    def trouble(self) -> str | None:
        """Why some of its games are not over, as text."""
        if self.error is not None:
            return f"not played: {self.error}"
        if self.failed:
            first = next(game for game in self.games if (game.ended or "").startswith("error: "))
            return f"{self.failed} failed with an error, first in game {first.number}: {first.ended}"
        return f"{self.left} not played" if self.left else None


class Row(Frozen):
    """The cells that differ only in their seed, pooled: their values by axis; `reference` is the row that it is
    compared with, the first that plays the same tasks (None: it is that one itself)."""

    name: str
    values: dict[str, str]
    reference: str | None


class Effect(Frozen):
    """The effect of one option: a value against the first one of its axis, over all cells that are otherwise equal. A
    game's differences are averaged first, so that each game counts once."""

    axis: str
    value: str
    reference: str
    metric: str
    found: Difference


class SweepData(Frozen):
    """The whole result. `axes` has the values of each option of the grid."""

    format: Literal["agentcho-sweep/1"] = "agentcho-sweep/1"
    scenario: str
    axes: dict[str, tuple[str, ...]]
    fixed: dict[str, Any]
    games: int
    machine: dict[str, str]
    command: str
    cells: tuple[CellResult, ...]
    rows: tuple[Row, ...]
    metrics: tuple[Metric, ...]
    effects: tuple[Effect, ...]

    @property
    def whole(self) -> bool:
        """Whether every game of every cell is over."""
        return all(cell.trouble is None for cell in self.cells)

    @property
    def varied(self) -> tuple[str, ...]:
        """The axes in which rows differ."""
        return tuple(name for name in self.rows[0].values if len({row.values[name] for row in self.rows}) > 1)

    def of(self, row: Row) -> list[CellResult]:
        """The cells of a row."""
        return [cell for cell in self.cells if cell.row == row.name]

    def figures(self) -> Iterator[dict[str, Any]]:
        """Every figure in long form: means, differences from the reference, and effects of single options."""
        for metric in self.metrics:
            for row in self.rows:
                mean, found = metric.means[row.name], metric.differences.get(row.name)
                if mean.games:
                    yield {**row.values, "metric": metric.name, "what": "mean", **_ends(mean)}
                if found is not None:
                    against = {"reference": row.reference, **_ends(found), **_tested(found)}
                    yield {**row.values, "metric": metric.name, "what": "difference", **against}
        for effect in self.effects:
            against = {"reference": f"{effect.axis}={effect.reference}", **_ends(effect.found), **_tested(effect.found)}
            yield {effect.axis: effect.value, "metric": effect.metric, "what": "effect", **against}

    def played(self) -> Iterator[dict[str, Any]]:
        """Every game as one row: the values of its cell, seed, number, how it ended, seconds, scores."""
        for cell in self.cells:
            for game in cell.games:
                about = {"seed": cell.seed, "game": game.number, "ended": game.ended, "seconds": game.seconds}
                yield {**cell.values, **about, **{f"score.{name}": value for name, value in game.score.items()}}


def _ends(found: Any) -> dict[str, Any]:
    span = found.span
    return {"value": found.value, "games": found.games, "low": span.low, "high": span.high, "method": span.method}


def _tested(found: Difference) -> dict[str, Any]:
    return {} if found.test == UNTESTED else {"test": found.test, "p": found.p, "holm": found.holm}
