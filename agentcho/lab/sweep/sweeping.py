"""Runs a sweep from its plan to its result: plays the missing games, cell by cell, and compares. A cell that cannot be
played, or a game that fails, does not affect the others. Independent of the command line, the terminal, and who plays.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentcho.errors import CannotWrite, WorkersLost
from agentcho.events import Counting, GameOver
from agentcho.lab.collect import Interrupted
from agentcho.lab.compare.pairs import Scores
from agentcho.lab.sweep.data import CellResult, GameResult
from agentcho.lab.sweep.figures import figures, row_name, statistics
from agentcho.lab.sweep.folder import Folder, There
from agentcho.lab.sweep.grid import Cell, settings
from agentcho.lab.sweep.plan import Plan, Sweep
from agentcho.lab.sweep.result import SweepResult
from agentcho.lab.sweep.stage import How, Stage, Turn
from agentcho.protocol.progress import ProgressCallback
from agentcho.records.environment import machine_info, source_digests, versions
from agentcho.records.record import SavedRun

LOG = logging.getLogger("agentcho.sweep")
FATAL = (CannotWrite, WorkersLost, BrokenPipeError)
"""Errors that end a whole sweep, because every other cell would fail too."""


@dataclass(frozen=True)
class Sweeping:
    """The state of one sweep: `plan` has what its folder holds."""

    sweep: Sweep
    plan: Plan
    folder: Folder
    stage: Stage
    how: How
    tell: ProgressCallback
    errors: dict[str, str] = field(default_factory=dict)

    def play(self) -> None:
        """Play the missing games. `Interrupted` after Ctrl-C. Errors that end a single cell are kept in `errors`."""
        cells = self.sweep.cells
        counting = Counting(self.tell, sum(len(cell.config.numbers) for cell in cells), self.plan.over(cells))
        try:
            for group in self.sweep.cells_by_network():
                saved = {cell.key: self.folder.records(cell) for cell in group}
                for cell in group:
                    others = (each for each in group if each.key != cell.key)
                    same = [each for each in others if each.config.adapter == cell.config.adapter]
                    self._play(cell, counting, [run for each in same for run in saved[each.key]])
        finally:
            self.stage.close()

    def _play(self, cell: Cell, counting: Counting, beside: Sequence[SavedRun]) -> None:
        left = self.plan.left(cell)
        if not left:
            return
        counting.what = f"games ({cell.name})"
        turn = Turn(
            cell=cell,
            selection=self.folder.begun(cell, left),
            out=self.folder.of(cell),
            sink=counting,
            saved=self.folder.records(cell),
            beside=beside,
        )
        try:
            played = self.stage.play(turn, self.how)
        except FATAL:
            raise
        except Exception as error:
            LOG.error("cell %s: %s", cell.key, type(error).__name__)
            self.errors[cell.key] = " ".join(f"{_kind(error)}{error}".split())
            return
        if played.interrupted:
            raise Interrupted

    def result(self, command: str) -> SweepResult:
        """The result over all games that are over."""
        sweep = self.sweep
        there = {cell.key: self.folder.there(cell) for cell in sweep.cells}
        scores = {cell.key: _scores(there[cell.key]) for cell in sweep.cells}
        found = figures(sweep, scores, sweep.cells[0].config.seed, statistics())
        return SweepResult(
            scenario=sweep.name,
            axes={axis.name: tuple(value.shown for value in axis.values) for axis in sweep.axes},
            fixed=_common(sweep.cells),
            games=sweep.games,
            machine=machine_info() | versions() | source_digests(),
            command=command,
            cells=tuple(self._cell(cell, there[cell.key]) for cell in sweep.cells),
            rows=found.rows,
            metrics=found.metrics,
            effects=found.effects,
        )

    def _cell(self, cell: Cell, there: There) -> CellResult:
        games = {**there.over, **there.failed}
        return CellResult(
            values=dict(cell.values),
            row=row_name(cell),
            seed=cell.config.seed,
            games=tuple(_game(games[number]) for number in sorted(games)),
            failed=len(there.failed),
            left=len(cell.config.numbers) - len(games),
            error=self.errors.get(cell.key),
            records=tuple(str(run.path.relative_to(self.folder.path)) for run in self.folder.records(cell)),
        )


def _kind(error: Exception) -> str:
    """The class name of an unexpected error, whose message alone says little; empty for errors of agentcho."""
    return "" if type(error).__module__.startswith("agentcho.") else f"{type(error).__name__}: "


def _game(over: GameOver) -> GameResult:
    return GameResult(number=over.game, score=dict(over.score), ended=over.ended, seconds=over.seconds)


def _scores(there: There) -> Scores:
    """The scores of games with an outcome, by number."""
    return {number: over.score for number, over in there.over.items() if over.outcome is not None}


def _common(cells: tuple[Cell, ...]) -> dict[str, object]:
    """The options that are equal in all cells: the scenario's, and the run's that are not the default."""
    all_cells = [_settings(cell) for cell in cells]
    first, *others = all_cells
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def _settings(cell: Cell) -> dict[str, object]:
    found = settings(cell.scenario, cell.config)
    return {**found["options"], **found["run"]}
