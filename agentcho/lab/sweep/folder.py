"""The folder of a sweep: its request, and for each cell the records of its games.

DIR/request.json     the axes, and each cell by its key, including those of earlier grids
DIR/cells/<key>/     the records of a cell, as of any run
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from agentcho.config import RunConfig
from agentcho.errors import RecordBroken, ResumeMismatch
from agentcho.games.play.journal import BegunCalls
from agentcho.games.runs.request import GameSelection
from agentcho.games.runs.resume import Changed, check_asked, settled_calls
from agentcho.lab.sweep.axes import Axis
from agentcho.lab.sweep.grid import Cell, settings
from agentcho.records.files import replace_whole, write_errors
from agentcho.records.frozen import Frozen
from agentcho.records.record import GameOver, SavedRun, runs
from agentcho.records.transcript import TranscriptEntry
from agentcho.scenario import json_options

FILE, CELLS = "request.json", "cells"
VALUES = 4
"""The maximum of values of an option that an error lists."""


class Settings(Frozen):
    """One cell as stored in a file: its values as shown, and everything that determines its games."""

    values: dict[str, str]
    options: dict[str, Any]
    run: dict[str, Any]

    @property
    def name(self) -> str:
        """Its values as text."""
        return " ".join(f"{axis}={value}" for axis, value in self.values.items())


class SweepRequest(Frozen):
    """The request, and all cells that ever were, by key. `axes` are those of the last grid."""

    format: Literal["agentcho-sweep-request/1"] = "agentcho-sweep-request/1"
    scenario: str
    axes: dict[str, tuple[str, ...]]
    cells: dict[str, Settings]


class Change(NamedTuple):
    """How a grid differs from the one that a folder was begun with: the names of added cells, and of those no longer in
    it. Both are empty if the folder is new."""

    added: tuple[str, ...]
    left: tuple[str, ...]


class There(NamedTuple):
    """The games in the records of a cell, by number: those that are over, and those that failed."""

    over: Mapping[int, GameOver]
    failed: Mapping[int, GameOver]


@dataclass(frozen=True)
class Folder:
    """A folder with one sweep, or still empty."""

    path: Path

    def earlier(self) -> SweepRequest | None:
        """The request that it was last claimed with. `RecordBroken`, `ResumeMismatch`: it has something else."""
        file = self.path / FILE
        if not file.exists():
            if found := runs(self.path):
                there = f"{len(found)} record{'s' if len(found) > 1 else ''} of runs, such as {found[0].path.name}"
                raise ResumeMismatch(f"{self.path} holds {there}, but no sweep; give another --out")
            return None
        try:
            return SweepRequest.model_validate_json(file.read_bytes())
        except ValueError:
            raise RecordBroken(file, "is not a request of a sweep", "give another --out") from None

    def change(self, scenario: str, cells: Sequence[Cell], filtered: bool = False) -> Change:
        """How these cells differ from those of the last grid. `filtered`: the grid has more cells than these.
        `ResumeMismatch`: the folder has another sweep, of another scenario or without a common cell."""
        earlier = self.earlier()
        if earlier is None or not earlier.cells:
            return Change((), ())
        if earlier.scenario != scenario:
            raise self._another([f"the scenario ({earlier.scenario}, not {scenario})"])
        keys = {cell.key for cell in cells}
        if keys.isdisjoint(earlier.cells) and not filtered:
            raise self._another(_apart(earlier, cells) or ["all cells of its grid"])
        new = [cell for cell in cells if cell.key not in earlier.cells and not _is_in(cell.values, earlier.axes)]
        left = [
            each.name for key, each in earlier.cells.items() if key not in keys and _is_in(each.values, earlier.axes)
        ]
        return Change(tuple(cell.name for cell in new), () if filtered else tuple(left))

    def claim(self, scenario: str, axes: Sequence[Axis], cells: Sequence[Cell]) -> None:
        """Claim the folder for this sweep, once `change` has allowed it."""
        earlier = self.earlier()
        with write_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        mine = {cell.key: Settings(values=dict(cell.values), **settings(cell.scenario, cell.config)) for cell in cells}
        named = {axis.name: tuple(value.shown for value in axis.values) for axis in axes}
        request = SweepRequest(scenario=scenario, axes=named, cells=({} if earlier is None else earlier.cells) | mine)
        replace_whole(self.path / FILE, request.model_dump_json(indent=1) + "\n")

    def _another(self, differ: Sequence[str]) -> ResumeMismatch:
        return ResumeMismatch.holds(self.path, "another sweep", differ)

    def of(self, cell: Cell) -> Path:
        """The folder of the records of a cell."""
        return self.path / CELLS / cell.key

    def records(self, cell: Cell) -> list[SavedRun]:
        """The records of a cell, oldest first."""
        return runs(self.of(cell))

    def there(self, cell: Cell) -> There:
        """The games in the records of a cell."""
        over, failed = dict[int, GameOver](), dict[int, GameOver]()
        for run in self.records(cell):
            for number, game in run.finished().items():
                (failed if game.failed else over)[number] = game
        wanted = cell.config.numbers
        over = {number: over[number] for number in sorted(over) if number in wanted}
        return There(over, {n: failed[n] for n in sorted(failed) if n in wanted and n not in over})

    def begun(self, cell: Cell, left: Sequence[int]) -> GameSelection:
        """The games of a cell to be played, each with what was said in it if it was begun before, and with its tool
        calls that have no result: such a game does not continue by itself."""
        said: dict[int, list[TranscriptEntry]] = {}
        calls: dict[int, BegunCalls] = {}
        saved = self.records(cell) if left else []
        for run in saved:
            for number, entries in run.kept().items():
                if number in left and entries:
                    said.setdefault(number, []).extend(entries)
        for run in saved:
            for number, found in settled_calls(run, said).items():
                calls[number] = BegunCalls(found.begun | calls.get(number, BegunCalls()).begun)
        return GameSelection(tuple(left), before=said, calls=calls)

    def check(self, cell: Cell, tasks: str | None, sources: Mapping[str, str], changed: Changed = "refuse") -> None:
        """`ResumeMismatch`: the records of a cell were played differently: its source has changed, or its tasks, of
        which `tasks` is the current digest. `sources`: the current ones."""
        scenario = cell.scenario
        options = json_options(scenario)
        for run in self.records(cell):
            config = cell.config.model_copy(update={"games": run.info.config.games})
            check_asked(
                run=run,
                scenario=scenario.name,
                options=options,
                config=config,
                tasks=tasks,
                sources=sources,
                changed=changed,
            )


def _apart(earlier: SweepRequest, cells: Sequence[Cell]) -> list[str]:
    """The options without a common value; those of a run with their values."""
    before, now = [*earlier.cells.values()], [Settings(values={}, **settings(c.scenario, c.config)) for c in cells]
    own = _apart_in([each.options for each in before], [each.options for each in now])
    run_before, run_now = [each.run for each in before], [each.run for each in now]
    names = _apart_in(run_before, run_now)
    return [*own, *(f"{name} ({_values(name, run_before)}, not {_values(name, run_now)})" for name in names)]


def _apart_in(before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> list[str]:
    names = sorted({name for each in (*before, *now) for name in each})
    return [name for name in names if not any(b.get(name) == n.get(name) for b in before for n in now)]


def _values(name: str, cells: Sequence[Mapping[str, Any]]) -> str:
    """The values of a run option, as text; missing ones are the default."""
    usual = RunConfig.model_fields[name].default if name in RunConfig.model_fields else None
    words = [*dict.fromkeys(str(cell.get(name, usual)) for cell in cells)]
    return " and ".join([*words[:VALUES], *([f"{len(words) - VALUES} more"] if len(words) > VALUES else [])])


def _is_in(values: Mapping[str, str], axes: Mapping[str, Sequence[str]]) -> bool:
    """Whether a grid with these axes has a cell with these values."""
    return values.keys() == axes.keys() and all(values[name] in axes[name] for name in axes)
