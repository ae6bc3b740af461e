"""Estimates the time of a reproduction on the understudy, from measured times of its parts; nothing is played.

The figure is rough: machines and their load differ. Other models have no estimate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from agentcho.errors import TaskError
from agentcho.lab.collect import over
from agentcho.lab.paper.adapters import Lesson
from agentcho.lab.paper.reproduction import TIMED, Reproduction
from agentcho.lab.paper.rows import SINGLE, column_of
from agentcho.lab.paper.tables import NAMED, SETS, Row, Table, table_named

MODEL = "understudy"
A_GAME: Mapping[str, float] = {
    "multi-qa": 0.06,
    "branch-solve-merge": 0.42,
    "prisoners-dilemma": 0.6,
    "direct": 0.04,
    "tree-of-thoughts": 0.7,
    "debate": 0.35,
    "parallel-debate": 0.6,
}
"""Seconds per game, with many at a time, by scenario. All figures are for one core of x86-64."""
A_TRACE: Mapping[str, float] = {
    "multi-qa": 0.05,
    "branch-solve-merge": 0.25,
    "prisoners-dilemma": 0.3,
    "direct": 0.07,
    "tree-of-thoughts": 0.68,
    "debate": 0.42,
    "parallel-debate": 0.56,
}
"""Seconds of training per trace and epoch, by scenario."""
A_TIMED_GAME: Mapping[str, float] = {
    "multi-qa": 0.21,
    "branch-solve-merge": 2.31,
    "prisoners-dilemma": 3.55,
    "tree-of-thoughts": 2.33,
    "debate": 2.23,
    "parallel-debate": 3.9,
    NAMED: 3.9,
}
"""Seconds per game of Table 5 in all its arms, by scenario."""
A_SWEEP = 70.0
"""Seconds of all points of Figure 4 in all its arms, with texts of their usual lengths."""


class Part(NamedTuple):
    """A part of the work, and its remaining seconds."""

    what: str
    seconds: float


def estimated(work: Reproduction) -> tuple[Part, ...]:
    """The remaining parts; empty if nothing is left, or the model has no estimate. Work finished by earlier commands is
    not counted."""
    if work.world.config.model != MODEL:
        return ()
    left = _Left(work)
    parts = (Part("games", left.games()), Part("adapters", left.adapters()), Part("times", left.times()))
    return tuple(part for part in parts if part.seconds > 0)


class _Left:
    """The remaining work of one reproduction. Games that two rows share are counted once."""

    def __init__(self, work: Reproduction) -> None:
        self._work, self._rows = work, work.rows
        self._seen = set[Path]()

    def games(self) -> float:
        """Seconds of the rows that need no training, and of the games for loaders and timing."""
        work = self._work
        whole = sum(self._row(row, None) for table in work.tables for row in table.rows if row.adapter == "none")
        if "5" in work.asked.tables:
            timed = (table_named(name).row(label) for name, label in TIMED.values())
            whole += sum(self._row(row, None, min(work.asked.games, work.effort.problems)) for row in timed)
        if SETS in work.asked.tables and work.asked.data == "generators":
            whole += sum(2 * work.tried * A_GAME[name] for name in work.asked.sets)
        return whole

    def adapters(self) -> float:
        """Seconds of traces, trainings, and games with adapters."""
        return 0.0 if self._work.asked.quick else sum(self._adapted(*each) for each in self._trained())

    def _trained(self) -> Iterator[tuple[Table, Row]]:
        yield from ((table, row) for table in self._work.tables for row in table.rows if row.adapter != "none")

    def _adapted(self, table: Table, row: Row) -> float:
        try:
            lesson = self._rows.lesson(table, row)
        except TaskError:
            return 0.0
        if lesson.done:
            return self._row(row, lesson.folder)
        source = row if row.of is None else table.row(row.of)
        if lesson.folder in self._seen:
            return 0.0 if row.taught is None else self._games(row)
        self._seen.add(lesson.folder)
        return self._traces(lesson, source) + _training(lesson, row) + self._games(row)

    def _games(self, row: Row) -> float:
        return self._work.asked.games * A_GAME[row.scenario]

    def _traces(self, lesson: Lesson, source: Row) -> float:
        """Seconds of sampling traces; those that several rows are trained on are sampled once."""
        count = len(lesson.numbers)
        again = 0 if lesson.single is None else count * A_GAME[SINGLE]
        if lesson.file in self._seen:
            return again
        self._seen.add(lesson.file)
        there = len(lesson.file.read_bytes().splitlines()) if lesson.file.exists() else 0
        return again + max(0, count - there) * A_GAME[source.scenario]

    def _row(self, row: Row, adapter: Path | None, games: int | None = None) -> float:
        """Seconds of the games that a row lacks."""
        column = column_of(row, adapter)
        folder = self._rows.folder(row, column, self._rows.playing(row, column, games))
        if folder in self._seen:
            return 0.0
        self._seen.add(folder)
        count = games or self._work.asked.games
        return (count - (len(over(folder, count)) if folder.is_dir() else 0)) * A_GAME[row.scenario]

    def times(self) -> float:
        """Seconds of Table 5 and Figure 4, as far as this folder lacks them."""
        asked, effort = self._work.asked, self._work.effort
        there = [file.read_text() for file in (self._work.world.folder / "times").glob("*.json")]
        done = {name for name in ("5", "f4") if any(f'"name": "{name}"' in told for told in there)}
        whole = 0.0
        if "5" in asked.tables and "5" not in done:
            whole += (min(asked.games, effort.problems) + 1) * sum(A_TIMED_GAME.values())
        if "f4" in asked.tables and "f4" not in done:
            whole += (effort.repeats + 1) * A_SWEEP * effort.scale
        return whole


def _training(lesson: Lesson, row: Row) -> float:
    """Seconds of a training, and of the games that select its checkpoint: before it, and after each epoch."""
    epochs = lesson.recipe.epochs
    traces = len(lesson.numbers) * (1 - lesson.recipe.dev)
    chosen = 0 if lesson.choice is None else len(lesson.choice.numbers) * (epochs + 1)
    return traces * epochs * A_TRACE[row.scenario] + chosen * A_GAME[row.scenario]
