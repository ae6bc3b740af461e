"""Runs `agentcho paper`: checks everything first, then loads a model, plays, trains, times and shows the tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from agentcho.cli.outputs import Outputs, fault_of
from agentcho.cli.signals import INTERRUPTED
from agentcho.config import RunConfig, again, option_names
from agentcho.display import Kind
from agentcho.display.progress import Progress, progress
from agentcho.display.safe import inline
from agentcho.errors import asking
from agentcho.games.runs import library, runtime
from agentcho.games.runs.discovery import from_anywhere
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.resume import Changed
from agentcho.games.runs.runtime import RunResult
from agentcho.integrations.ray.players import Cluster, players
from agentcho.protocol.progress import ProgressCallback
from agentcho.records import writer_lock
from agentcho.records.files import check_folder, write_errors, write_output
from agentcho.records.writer_lock import WriterLock
from agentcho.scenario import Scenario

if TYPE_CHECKING:
    from agentcho.lab.collect import Playing
    from agentcho.lab.paper.found import PaperFound
    from agentcho.lab.paper.reproduction import PaperRequest
    from agentcho.lab.paper.sets import Data
    from agentcho.lab.paper.tables import Name

FULL, FEW = 200, 20
SAID = ("model", *option_names("loading", "inference"), "seed", "temperature", "max_tokens")
"""The run options that a result depends on."""
SHIPPED = ("understudy", "fake")
"""Models that can only talk about the generators' tasks."""


class PaperOptions(NamedTuple):
    """The options of the command line. `tasks`: other task specifications, by workflow. `top_p` and `traces` None: the
    paper's."""

    tables: str | None
    games: int | None
    quick: bool
    budget: str | None
    data: Any
    tasks: Mapping[str, str]
    config: RunConfig
    top_p: float | None
    traces: int | None
    recipe: Mapping[str, Any]
    at_once: int
    on: Cluster | None
    judge: str | None
    out: Path
    export: Path | None
    html: Path | None
    display: Kind | None
    changed: Changed = "refuse"


def reproduce(asked: PaperOptions) -> int:
    """Run the command: measure, show, write. Returns the exit code: 0, 1 if something is left, or 130 after Ctrl-C;
    finished parts are kept."""
    from agentcho.lab.collect import Interrupted
    from agentcho.lab.display.paper import show
    from agentcho.lab.paper.html import html

    _check_files(asked)
    with progress("paper", sys.stderr) as told:
        try:
            found = _found(asked, told)
        except (Interrupted, KeyboardInterrupt):
            told.clear()
            print(f"interrupted; finished parts are in {asked.out}; repeat the command to continue", file=sys.stderr)
            return INTERRUPTED
        told.clear()
    show(found, asked.display, sys.stdout)
    if asked.export is not None:
        write_output(asked.export, found.model_dump_json(indent=1) + "\n")
    if asked.html is not None:
        write_output(asked.html, html(found))
    return 1 if found.left else 0


def check_file(file: Path) -> int:
    """Report the faults of an exported file. Returns the exit code: 1 if it has any."""
    from agentcho.lab.paper.check import faults

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}", param_hint="--check") from None
    found = faults(text)
    for fault in found:
        print(inline(f"{file}: {fault}"), file=sys.stderr)
    if not found:
        print(inline(f"{file}: its schema and its figures are consistent"))
    return 1 if found else 0


def _found(asked: PaperOptions, told: Progress) -> PaperFound:
    """Check everything, load, print the estimated time if it is known, then do what is left."""
    from agentcho.lab.paper.estimate import estimated
    from agentcho.lab.paper.phases import Phases, parsed_budget
    from agentcho.lab.paper.reproduction import Reproduction
    from agentcho.lab.paper.rows import World
    from agentcho.lab.paper.wording import planned

    budget = None if asked.budget is None else parsed_budget(asked.budget)
    if asked.judge in SHIPPED:
        raise typer.BadParameter(f"{asked.judge} cannot judge; name a real model", param_hint="--judge")
    engines = Engines(asked, told.tell)
    with write_errors(asked.out):
        asked.out.mkdir(parents=True, exist_ok=True)
    with WriterLock(asked.out / writer_lock.NAME):
        request, phases = _request(asked), Phases(asked.out / "phases.jsonl", budget)
        world = World(
            config=asked.config,
            open=engines.open,
            here=engines.here,
            folder=asked.out,
            tell=told.tell,
            fake=asked.config.model == "fake",
            top_p=asked.top_p,
            traces=asked.traces,
            recipe=asked.recipe,
        )
        work = Reproduction(world, request, phases)
        work.check()
        work.judge = engines.judge()
        if parts := estimated(work):
            told.clear()
            print(f"paper: {planned(parts)}", file=sys.stderr, flush=True)
        return work.run()


def _request(asked: PaperOptions) -> PaperRequest:
    """The request. A usage error for an unknown table or workflow; `TaskError` for tasks that cannot be obtained."""
    from agentcho.lab.paper.reproduction import PaperRequest
    from agentcho.lab.paper.sets import PUBLISHED, sets

    for name in asked.tasks:
        if name not in PUBLISHED:
            what = f"{name!r} is none of {', '.join(PUBLISHED)}{asking(name, PUBLISHED)}"
            raise typer.BadParameter(what, param_hint="--tasks")
    data: Data = asked.data or ("generators" if asked.config.model in SHIPPED else "published")
    tables, games = _tables(asked.tables), asked.games or (FEW if asked.quick else FULL)
    chosen = sets(data, asked.out / "tasks", asked.tasks, _worked_at(tables))
    return PaperRequest(
        tables=tables, games=games, quick=asked.quick, data=data, sets=chosen, command=_command(asked, data, games)
    )


def _tables(text: str | None) -> tuple[Name, ...]:
    """The named tables in the paper's order; all if none is named."""
    from agentcho.lab.paper.tables import NAMES

    if text is None:
        return NAMES
    named = [word.strip().lower() for word in text.split(",")]
    for word in named:
        if word not in NAMES:
            raise typer.BadParameter(f"{word!r} is none of {', '.join(NAMES)}", param_hint="--table")
    return tuple(name for name in NAMES if name in named)


def _worked_at(tables: tuple[Name, ...]) -> frozenset[str]:
    """The workflows whose tasks these tables need."""
    from agentcho.lab.paper.reproduction import TIMED
    from agentcho.lab.paper.sets import PUBLISHED
    from agentcho.lab.paper.tables import SETS, TABLES, table_named

    if SETS in tables:
        return frozenset(PUBLISHED)
    played = {row.scenario for table in TABLES if table.name in tables for row in table.rows}
    timed = {table_named(name).row(label).scenario for name, label in TIMED.values()} if "5" in tables else set()
    return frozenset(played | timed)


def _command(asked: PaperOptions, data: str, games: int) -> str:
    """The command that reproduces the result."""
    words = ["agentcho", "paper", "-n", str(games), "--data", data]
    words += [] if asked.tables is None else ["--table", asked.tables]
    words += ["--quick"] if asked.quick else []
    words += [] if asked.top_p is None else ["--top-p", str(asked.top_p)]
    words += [] if asked.traces is None else ["--traces", str(asked.traces)]
    for option, value in asked.recipe.items():
        words += [f"--{option}", str(value)]
    words += [] if asked.judge is None else ["--judge", asked.judge]
    for name, spec in asked.tasks.items():
        words += ["--tasks", f"{name}={spec}"]
    return again(words, asked.config, SAID)


def _check_files(asked: PaperOptions) -> None:
    """A usage error for files that could not be written, before a model is loaded."""
    Outputs(json=None, html=asked.html).check()
    if asked.export is not None and (fault := fault_of(asked.export)) is not None:
        raise typer.BadParameter(f"{asked.export} cannot be written: {fault}", param_hint="--export")
    check_folder(asked.out)
    writer_lock.check(asked.out / writer_lock.NAME)


class Engines:
    """The engines of one command; each is loaded on first use."""

    def __init__(self, asked: PaperOptions, tell: ProgressCallback) -> None:
        self._asked, self._tell = asked, tell
        self._workers = None if asked.on is None else ByWorkers(asked.on, asked.config)

    @cached_property
    def _own(self) -> Any:
        return runtime.load_engine(self._asked.config, self._tell)

    def here(self) -> Any:
        """The model in this process."""
        return self._own

    def judge(self) -> Any:
        """The judge model, on the same device; None: there is none."""
        name = self._asked.judge
        if name is None:
            return None
        return runtime.load_engine(self._asked.config.model_copy(update={"model": name}), self._tell)

    def open(self, scenario: Scenario, config: RunConfig) -> Playing:
        """How games of a scenario are played: in this process, or by workers."""
        from agentcho.lab.collect import Playing

        if self._workers is None:
            return Playing(scenario, config, self._own, self._asked.at_once, changed=self._asked.changed)
        workers: Any = self._workers
        return Playing(
            scenario=scenario,
            config=config,
            engine=workers,
            at_once=self._asked.at_once,
            play_on=workers.play,
            here=self.here,
            changed=self._asked.changed,
        )


class ByWorkers:
    """The model on workers, which exist only while the games of a row are played, not while something is measured
    here."""

    def __init__(self, on: Cluster, config: RunConfig) -> None:
        self._on, self._config = on, config
        self._met: dict[tuple[str, str], None] = {}

    @cached_property
    def fingerprint(self) -> dict[str, str]:
        """The fingerprint of the workers' engine; waits for a worker."""
        from agentcho.integrations.ray.remote import RemoteEngine

        scenario = library.scenario("direct")()
        with players(self._on, from_anywhere(scenario.name), self._config, "encodings") as workers:
            return RemoteEngine(workers, scenario, self._config).fingerprint

    def adapted(self, adapter: str) -> ByWorkers:
        """Return self: workers load the adapter that a game's options name."""
        return self

    def meet(self, header: str, text: str) -> None:
        """Register forced texts for workers whose engine has no other source of words (the fake)."""
        if self._config.model == "fake":
            self._met[header, text] = None

    def play(self, request: RunRequest) -> RunResult:
        """Play games by workers, as `games.runs.runtime.play` does on an engine."""
        from agentcho.integrations.ray.runs import play

        with players(self._on, from_anywhere(request.scenario.name), self._config, "encodings") as workers:
            workers.met.update(self._met)
            return play(workers, request)
