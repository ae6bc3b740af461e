"""Runs a sweep from its options: checks everything first, for all cells, then plays, compares and writes. Independent
of the command line.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from agentcho.config import again
from agentcho.errors import ConfigError, ExtraMissing
from agentcho.extras import require
from agentcho.games.runs import library
from agentcho.games.runs.discovery import from_anywhere
from agentcho.games.runs.request import OnFailure
from agentcho.games.runs.resume import Changed
from agentcho.integrations.ray.players import Cluster, players
from agentcho.lab.sweep import plan as planning
from agentcho.lab.sweep.axes import Value, axes
from agentcho.lab.sweep.files import write, write_json
from agentcho.lab.sweep.folder import Folder
from agentcho.lab.sweep.grid import Cell, Fixed, cells, check_axis, wanted
from agentcho.lab.sweep.plan import Plan, Sweep
from agentcho.lab.sweep.result import SweepResult
from agentcho.lab.sweep.stage import How, LocalStage, RemoteStage, Stage, check_models, is_served
from agentcho.lab.sweep.sweeping import Sweeping
from agentcho.protocol.call import EnginePort
from agentcho.protocol.progress import ProgressCallback
from agentcho.records import writer_lock
from agentcho.records.files import check_file, check_folder, write_errors
from agentcho.records.writer_lock import WriterLock
from agentcho.scenario import Scenario

GAMES = 50
"""The default number of games per cell."""


class SweepOptions(NamedTuple):
    """The options of a sweep. `scenario` is a name or a class; `fixed` is what all cells share, and its `run` has the
    number of games."""

    scenario: str | type[Scenario]
    grid: Mapping[str, Sequence[Any]]
    models: Sequence[Value]
    fixed: Fixed
    filters: Sequence[str] = ()
    out: Path | None = None
    json: Path | None = None
    at_once: int | None = None
    retries: int = 0
    changed: Changed = "refuse"
    on: Cluster | None = None
    engine: EnginePort | None = None

    @property
    def kind(self) -> type[Scenario]:
        """The class of the scenario."""
        return library.scenario(self.scenario) if isinstance(self.scenario, str) else self.scenario

    @property
    def named(self) -> str | None:
        """The scenario's name in a form that can be found from anywhere."""
        return from_anywhere(self.scenario) if isinstance(self.scenario, str) else None


def prepared(asked: SweepOptions) -> Sweep:
    """The requested cells, checked. Loads nothing. Raises what is wrong with any of them."""
    kind = asked.kind
    make = partial(library.configured, kind)
    found = axes(asked.grid, asked.models, kind)
    for axis in found:
        check_axis(axis, make)
    chosen = cells(found, asked.fixed, make, wanted(asked.filters, found))
    if isinstance(asked.scenario, str):
        _check_agents(chosen)
    if asked.engine is not None and any(axis.field in ("model", "models", "adapter") for axis in found):
        raise ConfigError("all cells are played on the given engine; leave models and adapters out of the grid")
    games = chosen[0].config.games
    return Sweep(
        name=kind.name,
        axes=found,
        cells=chosen,
        games=games,
        tasks=planning.tasks(chosen),
        filtered=bool(asked.filters),
    )


def _check_agents(chosen: Sequence[Cell]) -> None:
    """Raise an error if an agent that some cell casts by name cannot be found."""
    for agent in {*library.casts(chosen[0].scenario), *(name for cell in chosen for name in cell.scenario.casts())}:
        library.agent(agent)


def swept(
    asked: SweepOptions, sweep: Sweep, plan: Plan, tell: ProgressCallback
) -> tuple[SweepResult, tuple[Path, ...]]:
    """Play the missing games. Returns the result and the files written. `Interrupted` after Ctrl-C."""
    _check_files(asked)
    if asked.engine is None:
        check_models([cell.config for cell in sweep.cells if plan.left(cell)], elsewhere=asked.on is not None)
    with _folder(asked.out) as path:
        folder, failing = Folder(path), OnFailure(retries=asked.retries)
        how = How(asked.named, asked.at_once, failing, sweep.find_agent)
        folder.claim(sweep.name, sweep.axes, sweep.cells)
        with _stage(asked, sweep, plan, tell) as stage:
            work = Sweeping(sweep=sweep, plan=plan, folder=folder, stage=stage, how=how, tell=tell)
            work.play()
        found = work.result(_command(asked))
        written = () if asked.out is None else write(found, path, picture=lacking() is None)
    if asked.json is not None:
        write_json(found, asked.json)
    return found, written


def lacking() -> str | None:
    """What has to be installed for intervals and the plot; None: nothing."""
    try:
        require("for the intervals, tests and picture of a sweep", "lab")
    except ExtraMissing as missing:
        return str(missing)
    return None


@contextmanager
def _stage(asked: SweepOptions, sweep: Sweep, plan: Plan, tell: ProgressCallback) -> Iterator[Stage]:
    """Who plays: this process, or the workers of a cluster."""
    here, left = LocalStage(tell, asked.engine), [cell.config for cell in sweep.cells if plan.left(cell)]
    if asked.on is None or not left:
        yield here
        return
    first = next((config for config in left if not is_served(config)), left[0])
    with players(asked.on, asked.named or "", first, "games") as workers:
        yield RemoteStage(workers, here)


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder of the games; a temporary one if none is given."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="agentcho-") as folder:
            yield Path(folder)
        return
    with write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    with WriterLock(out / writer_lock.NAME):
        yield out


def _check_files(asked: SweepOptions) -> None:
    """Raise `CannotWrite` or `RecordInUse` before a model is loaded."""
    if asked.out is not None:
        check_folder(asked.out)
        writer_lock.check(asked.out / writer_lock.NAME)
    if asked.json is not None:
        check_file(asked.json)


def _command(asked: SweepOptions) -> str:
    """The command that reproduces the result. Options of the scenario may be secret, so only their names are given."""
    scenario = asked.scenario if isinstance(asked.scenario, str) else asked.scenario.name
    words = ["agentcho", "sweep", scenario]
    for name, values in asked.grid.items():
        words += ["--grid", f"{name}={_listed(values)}"]
    words += ["--models", ",".join(map(_shown, asked.models))] if asked.models else []
    for name, value in asked.fixed.run.items():
        if name == "limits":
            words += [word for key, limit in value.items() for word in ("--limit", f"{key}={limit}")]
        elif name != "own_model":
            words += [] if value is False else [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    words += [word for each in asked.filters for word in ("--filter", each)]
    return again(words, given=asked.fixed.scenario)


def _listed(values: Sequence[Any]) -> str:
    """The values of an axis as `--grid` takes them: separated by commas, or as a JSON list if one contains a comma."""
    shown = [_shown(value) for value in values]
    return json.dumps(list(values), ensure_ascii=False) if any("," in each for each in shown) else ",".join(shown)


def _shown(value: Any) -> str:
    return value.shown if isinstance(value, Value) else str(value)
