"""The plan of a sweep: its cells, the games that are over, and the order of play.

Cells on one network are played one after another, so that each model is loaded once, and never beside another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from agentcho.config import DEFAULT_MODEL, KEYS, NETWORK, RunConfig
from agentcho.engine.lora_adapter import find_adapter
from agentcho.errors import ConfigError, ResumeMismatch
from agentcho.games.runs import library
from agentcho.games.runs.request import FindAgent
from agentcho.games.runs.resume import Changed
from agentcho.games.runs.runtime import tasks_of
from agentcho.lab.sweep.axes import Axis
from agentcho.lab.sweep.folder import Change, Folder, There
from agentcho.lab.sweep.grid import Cell
from agentcho.tasks import TaskSet


class Task(NamedTuple):
    """The tasks that the games of a cell draw: the digest of the set, if there is one, and the number per game. Cells
    with equal values play the same tasks, game by game."""

    digest: str | None
    draws: int


@dataclass(frozen=True)
class Sweep:
    """A requested sweep. `filtered`: the grid has more cells than these. `find_agent`: finds the agents of all
    cells."""

    name: str
    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    games: int
    tasks: Mapping[str, Task]
    filtered: bool = False
    find_agent: FindAgent = field(default_factory=lambda: cache(library.agent))

    def cells_by_network(self) -> list[list[Cell]]:
        """The cells in order of play, grouped by network, and within a group by adapter."""
        groups: dict[object, list[Cell]] = {}
        for cell in self.cells:
            groups.setdefault(network(cell.config), []).append(cell)
        return [_by_adapter(group) for group in groups.values()]


class Plan(NamedTuple):
    """The existing games of a sweep, by cell, and how its grid differs from an earlier one."""

    there: Mapping[str, There]
    change: Change

    def left(self, cell: Cell) -> tuple[int, ...]:
        """The games of a cell that are to be played."""
        return tuple(number for number in cell.config.numbers if number not in self.there[cell.key].over)

    def over(self, cells: Sequence[Cell]) -> int:
        """The number of games of these cells that are over."""
        return sum(len(self.there[cell.key].over) for cell in cells)


def planned(sweep: Sweep, folder: Folder | None, changed: Changed = "refuse") -> Plan:
    """The plan of a sweep, only from what is on disk. Writes nothing, loads nothing. `ResumeMismatch`, `RecordBroken`:
    the folder has something else. `ConfigError`: several models would share one folder of kept encodings."""
    _check_kept(sweep)
    if folder is None:
        return Plan({cell.key: There({}, {}) for cell in sweep.cells}, Change((), ()))
    change = folder.change(sweep.name, sweep.cells, sweep.filtered)
    for cell in sweep.cells:
        sources = library.sources(cell.scenario, sweep.find_agent)
        folder.check(cell, sweep.tasks[cell.key].digest, sources, changed)
    _check_adapters(sweep, folder)
    return Plan({cell.key: folder.there(cell) for cell in sweep.cells}, change)


def tasks(cells: Sequence[Cell]) -> dict[str, Task]:
    """The tasks of each cell's games, by its key. `TaskError`, `ExtraMissing`: they cannot be played."""
    read: dict[object, TaskSet | None] = {}
    found: dict[str, Task] = {}
    for cell in cells:
        spec, draws = cell.config.tasks or cell.scenario.tasks, cell.scenario.draws() if cell.scenario.tasks else 1
        which = spec, cell.config.seed, draws
        if which not in read:
            read[which] = tasks_of(cell.scenario, cell.config)
        drawn = read[which]
        found[cell.key] = Task(None if drawn is None else drawn.digest, draws)
    return found


def network(config: RunConfig) -> object:
    """What is loaded for a cell; cells with equal values share what is loaded."""
    if config.models or config.own.served or config.merge:
        models = {name: model.model_copy(update=dict.fromkeys(KEYS)) for name, model in config.models.items()}
        own = config.own, config.merge, config.device_map, config.threads, config.disk_tokens, config.keep_cache
        return *own, tuple(models.items())
    return tuple(getattr(config, name) for name in NETWORK)


def _check_kept(sweep: Sweep) -> None:
    folders = [group[0].config.keep_cache for group in sweep.cells_by_network()]
    if shared := next((each for each in folders if each is not None and folders.count(each) > 1), None):
        what = f"keep_cache {shared} holds one model loaded in one way, but the cells need several"
        raise ConfigError(f"{what}; leave it out, or sweep them separately")


def _check_adapters(sweep: Sweep, folder: Folder) -> None:
    """Raise `ResumeMismatch` if the weights of an adapter have changed since games were played with it."""
    digest = cache(lambda adapter: find_adapter(adapter).digest)
    for cell in sweep.cells:
        config, saved = cell.config, folder.records(cell)
        adapters = {name: model.adapter for name, model in config.models.items()}
        for run in saved:
            engines = {DEFAULT_MODEL: run.info.engine, **run.info.engines}
            for name, adapter in {DEFAULT_MODEL: config.adapter, **adapters}.items():
                then = engines.get(name, {}).get("adapter")
                if adapter is None or then is None or not Path(adapter).is_dir():
                    continue
                if digest(adapter) != then:
                    differs = [f"the weights of adapter {adapter}"]
                    raise ResumeMismatch.holds(folder.path, "games that were played in another way", differs)


def _by_adapter(cells: Sequence[Cell]) -> list[Cell]:
    first = list(dict.fromkeys(cell.config.adapter for cell in cells))
    return sorted(cells, key=lambda cell: first.index(cell.config.adapter))
