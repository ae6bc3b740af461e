"""Plays the games of a run side by side on one engine, and keeps their record whole, however the run ends.

Does not know: the terminal, where a scenario came from. The engine is loaded when a run needs it, not before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import NamedTuple, TypeVar, TypeVarTuple, Unpack, cast

import anyio

from agentcho.calls.call import EnginePort
from agentcho.calls.costs import Costs
from agentcho.calls.texts import TextPort
from agentcho.calls.variables import of_option
from agentcho.config import RunConfig
from agentcho.errors import AudienceError, GamesFailed, TaskError
from agentcho.events import Over, Sink
from agentcho.extras import importing
from agentcho.flow.markers import check_markers, required_markers
from agentcho.games import library
from agentcho.games.faults import fault
from agentcho.games.human import People, with_people
from agentcho.games.loading import (
    Loaded,
    as_engines,
    fingerprints,
    load_together,
    remote,
    speculate,
    tell_differences,
    tell_unread,
    threads_of,
)
from agentcho.games.recording import RecordingSink
from agentcho.games.resume import (
    Changed,
    check_asked,
    check_engine,
    loading_config,
    recorded_entries,
    settled_calls,
    unfinished_games,
)
from agentcho.games.run import (
    LOG,
    Failed,
    FindAgent,
    GameSelection,
    OnFailure,
    Run,
    package_of,
    stopped,
)
from agentcho.progress import Tell, unheard
from agentcho.records import writer
from agentcho.records.files import check_folder
from agentcho.records.record import RunRecord, SavedRun
from agentcho.records.transcript import Entry
from agentcho.scenario import Scenario
from agentcho.tasks import Problem, TaskSet, task_set
from agentcho.tasks.mathematics import require_verifier

ENGINE = logging.getLogger("agentcho.engine")
T = TypeVar("T")
Args = TypeVarTuple("Args")


class RunResult(NamedTuple):
    """What a run came to. `games` are those that ended, by number; `steps` counts the engine's forwards.

    `errors` are those that ended a game, by its number, the first to fail first; the other games went on. `record` is
    the run's folder, if it has one.
    """

    games: tuple[Over, ...]
    steps: int
    interrupted: bool
    errors: dict[int, Failed]
    record: Path | None

    @property
    def error(self) -> BaseException | None:
        """The first that ended a game."""
        return next((failed.error for failed in self.errors.values()), None)

    def check(self, of: int) -> None:
        """`GamesFailed`, which lists them, where errors ended some of `of` games."""
        if self.errors:
            raise GamesFailed({game: str(failed.fault) for game, failed in self.errors.items()}, of, self.record)


def play(
    scenario: Scenario,
    config: RunConfig | None = None,
    *,
    engine: EnginePort | None = None,
    others: Mapping[str, EnginePort | TextPort] | None = None,
    sink: Sink | None = None,
    out: Path | None = None,
    at_once: int | None = None,
    find_agent: FindAgent | None = None,
    selection: GameSelection | None = None,
    on_failure: OnFailure | None = None,
    asked: str | None = None,
    tell: Tell = unheard,
    people: People = MappingProxyType({}),
) -> RunResult:
    """Play `config.games` games of a scenario, or a `selection` of them, from a plain thread, until all are over.

    `engine` and `others`, by the names that agents are given, are models to play on instead of loading those of the
    config. `out` is the folder of runs to record in (None: no record), `asked` how the scenario was named, for the
    record. `sink` hears every event, on the event loop; `tell` how far the loading of a model is. Ctrl-C stops the
    run, with everything said so far in the record. An error of one game ends that game, is returned, and leaves the
    others alone, unless `on_failure` says otherwise. What `sink` raises stops the run. `people` play the agents of
    these names; `AudienceError`, at the end, where one of them was never cast.
    """
    config = with_people(config or RunConfig(), people, library.cast_names(scenario) if people else None)
    tasks = checked(scenario, config, out)
    loaded = load_models(config, engine, others, tell)
    how = Asked(sink, out, at_once, find_agent or library.agent, selection, on_failure, asked, people)
    with begun(scenario, config, tasks, loaded, how) as (run, record):
        return recorded(record, run, _play(run, at_once))


class Asked(NamedTuple):
    """How a run is to be played: see `play`."""

    sink: Sink | None = None
    out: Path | None = None
    at_once: int | None = None
    find_agent: FindAgent = library.agent
    selection: GameSelection | None = None
    on_failure: OnFailure | None = None
    asked: str | None = None
    people: People = MappingProxyType({})


def checked(scenario: Scenario, config: RunConfig, out: Path | None) -> TaskSet | None:
    """The tasks of a run, once it is known that they are there and that its record can be written."""
    tasks = tasks_of(scenario, config)
    if out is not None:
        check_folder(out)
    return tasks


@contextmanager
def begun(
    scenario: Scenario, config: RunConfig, tasks: TaskSet | None, loaded: Loaded, how: Asked
) -> Iterator[tuple[Run, RunRecord | None]]:
    """A context in which a run is to be played, and its record is open, where it has one."""
    find, selection, on_failure = how.find_agent, how.selection or GameSelection(), how.on_failure or OnFailure()

    def run(record: RunRecord | None) -> Run:
        listen = RecordingSink(record, how.sink)
        return Run(scenario, config, tasks, *loaded, listen, find, selection, on_failure, how.people)

    if how.out is None:
        yield run(None), None
        return
    options = scenario.options.model_dump(mode="json")
    own, beside = fingerprints(loaded)
    digest, used = None if tasks is None else tasks.digest, library.sources(scenario)
    asked = own, digest, how.at_once, how.asked, used, beside, speculate(config, loaded)
    with RunRecord.create(how.out, scenario.name, options, config, *asked) as record:
        yield run(record), record


def resume(
    saved: SavedRun,
    scenario: Scenario,
    config: RunConfig | None = None,
    *,
    engine: EnginePort | None = None,
    others: Mapping[str, EnginePort | TextPort] | None = None,
    sink: Sink | None = None,
    at_once: int | None = None,
    find_agent: FindAgent | None = None,
    on_failure: OnFailure | None = None,
    changed: Changed = "refuse",
    redo: Iterable[str] = (),
    skip: Iterable[str] = (),
    tell: Tell = unheard,
    people: People = MappingProxyType({}),
) -> RunResult:
    """Play what a recorded run lacks: games that are not over, or that an error ended, each begun anew with the words
    that it said before. `config` and `at_once` default to the run's own. Calls of tools that were begun without a
    result, each as GAME:CALL, are made again (`redo`) or not (`skip`); a game with another such call does not go on.

    `ResumeMismatch` where it was played otherwise, `RecordInUse` where somebody writes it; a game that departs from
    what it said ends by `ResumeMismatch`. Everything else as in `play`.
    """
    config, used = with_people(config or saved.info.config, people), library.sources(scenario)
    tasks = tasks_of(scenario, config)
    options = scenario.options.model_dump(mode="json")
    check_asked(saved, scenario.name, options, config, None if tasks is None else tasks.digest, used, changed)
    before = recorded_entries(saved)
    calls = settled_calls(saved, before, redo, skip)
    writer.check(saved.path / writer.NAME)
    check_folder(saved.path)
    loaded = load_models(loading_config(saved, config), engine, others, tell, saved.info.costs)
    check_engine(saved, *fingerprints(loaded))
    with RunRecord.go_on(saved, used) as record:
        selection = GameSelection(unfinished_games(saved), before=before, typed=saved.typed(), calls=calls)
        for model in (loaded.engine, *loaded.others.values()):
            meet(model, chain.from_iterable(selection.before.values()))
        find, on_failure = find_agent or library.agent, on_failure or OnFailure()
        listen = RecordingSink(record, sink)
        run = Run(scenario, config, tasks, *loaded, listen, find, selection, on_failure, people)
        return recorded(record, run, _play(run, at_once or saved.info.at_once))


def meet(engine: EnginePort, entries: Iterable[Entry]) -> None:
    """Let an engine meet the words that it is to say again, where it knows none that it has not met (the fake)."""
    if (known := getattr(engine, "meet", None)) is not None:
        for entry in entries:
            known(entry.message.header, entry.message.text)


def recorded(record: RunRecord | None, run: Run, came_to: RunResult) -> RunResult:
    """What a run came to, once its record, if it has one, says so."""
    if record is None:
        return _all_met(run, came_to)
    record.most = max(run.most, record.most or 0)
    record.close("interrupted" if came_to.interrupted else "failed" if came_to.errors else "done")
    return _all_met(run, came_to._replace(record=record.path))


def _all_met(run: Run, played: RunResult) -> RunResult:
    """What a run came to. `AudienceError`: people were to play agents that no game of it has cast."""
    absent = [name for name in run.config.people if name not in run.met]
    if absent and not played.interrupted and any(not game.failed for game in played.games):
        kept = "" if played.record is None else f". All games are over and recorded: {played.record}"
        raise AudienceError(f"nobody is called {' or '.join(absent)}, to be played by a person{kept}", run.met)
    return played


def _play(run: Run, at_once: int | None) -> RunResult:
    tell_begins(run)
    try:
        blocking(run.play, at_once)
        interrupted = run.interrupted
    except KeyboardInterrupt:
        interrupted = True
    except SystemExit as exit:  # a task that a game started raised it, which ends the loop
        raise stopped(str(fault(exit, package_of(run.scenario)))) from exit
    return result(run, interrupted)


def tell_begins(run: Run) -> None:
    """Log that a run begins."""
    LOG.info("%s begins: %d games, %s, %s", run.scenario.name, run.config.games, run.config.mode, run.config.leakage)


def result(run: Run, interrupted: bool) -> RunResult:
    """What a run came to that is over."""
    games = tuple(run.finished[index] for index in sorted(run.finished))
    name, end = run.scenario.name, "is interrupted" if interrupted else "is over"
    LOG.info("%s %s: %d games, %d of them failed, %d steps", name, end, len(games), len(run.errors), run.steps)
    return RunResult(games, run.steps, interrupted, run.errors, None)


def blocking(work: Callable[[Unpack[Args]], Awaitable[T]], *args: *Args) -> T:
    """Run async work to its end from plain code; in a thread of its own where an event loop runs already (a
    notebook)."""
    if not _in_a_loop():
        return _to_its_end(work, *args)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: _to_its_end(work, *args)).result()


def _to_its_end(work: Callable[[Unpack[Args]], Awaitable[T]], *args: *Args) -> T:
    """Run async work. `KeyboardInterrupt` of the work is raised behind the event loop: one that comes out of its first
    task ends the loop before it has stopped its threads, and the process would wait for them forever."""
    interrupts = list[KeyboardInterrupt]()

    async def kept() -> T | None:
        try:
            return await work(*args)
        except KeyboardInterrupt as interrupt:
            interrupts.append(interrupt)
            return None

    done = anyio.run(kept)
    if interrupts:
        raise interrupts[0]
    return cast(T, done)


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def tasks_of(scenario: Scenario, config: RunConfig) -> TaskSet | None:
    """The tasks that a run's games draw from; None where the scenario takes none. Needs no model.

    `TaskError` where they cannot be read, are none of its kind, or are too few for all games;
    `ExtraMissing` where their answers are checked by a library that is not there.
    """
    spec = config.tasks or scenario.tasks
    if spec is None:
        return None
    if scenario.tasks is None:
        what = f"{scenario.name} takes no tasks; leave --tasks out, or set `tasks` in the scenario"
        raise TaskError(spec, None, what)
    tasks = task_set(spec, scenario.kind, config.seed)
    needed = config.games * scenario.draws()
    if tasks.size is not None and tasks.size < needed:
        raise _too_few(tasks, config.games, scenario.draws())
    if any(isinstance(task, Problem) and task.check == "math" for task in map(tasks.__getitem__, range(needed))):
        require_verifier()
    return tasks


def _too_few(tasks: TaskSet, games: int, each: int) -> TaskError:
    size = tasks.size or 0
    drawn = f"{games} games draw {each} each, {games * each} in all"
    most = f"play at most {size // max(1, each)} games, or give more tasks"
    return TaskError(tasks.name, None, f"the set has {size} tasks, and {drawn}; {most}")


def load_models(
    config: RunConfig,
    engine: EnginePort | None,
    others: Mapping[str, EnginePort | TextPort] | None,
    tell: Tell,
    costs: Mapping[str, Costs] = MappingProxyType({}),
) -> Loaded:
    """All models of a run, those aside that are given. Nothing is loaded where one of them cannot be. `costs`: what a
    record says of their forwards."""
    given = as_engines(others or {})
    if config.models:
        return checked_models(config, load_together(config, engine, given, tell), costs)
    return checked_models(config, Loaded(engine or load_engine(config, tell), given), costs)


def load_share(config: RunConfig, engine: EnginePort | None, share: float) -> Loaded:
    """All models of a run, with this share of the memory that one process would take for encodings."""
    if config.models:
        return checked_models(config, load_together(config, engine, {}, unheard, share))
    return checked_models(config, Loaded(engine or load_engine(config, share=share), {}))


def checked_models(config: RunConfig, loaded: Loaded, costs: Mapping[str, Costs] = MappingProxyType({})) -> Loaded:
    """Models of a run, once it is known that their messages can be told apart, as it needs, and what their forwards
    cost, where they guess."""
    required = required_markers(config.policy, config.plain_markers)
    check_markers(loaded.engine.framing.plain, required, config.model)
    for name, other in loaded.others.items():
        check_markers(other.framing.plain, required, name)
    speculate(config, loaded, costs)
    return loaded


def load_engine(config: RunConfig, tell: Tell = unheard, share: float = 1) -> EnginePort:
    """The engine that a run asks for; "fake" is the scripted one of `agentcho.testing`, without a model. `tell` hears
    how far it is. `share`: of what one process would take for encodings."""
    began = perf_counter()
    ENGINE.info("loading %s", config.model)
    try:
        engine = _load(config, tell, share)
    except Exception as error:
        ENGINE.error("%s was not loaded: %s", config.model, type(error).__name__)
        raise
    ENGINE.info("loaded %s, %.1f s%s", config.model, perf_counter() - began, threads_of(engine))
    tell_differences(config.model, engine, config.mode)
    tell_unread(config.model, engine, config.chat_template_kwargs)
    return engine


def _load(config: RunConfig, tell: Tell, share: float) -> EnginePort:
    if config.own.served:
        return remote(config.own, config.model)
    if config.model == "fake":
        from agentcho.backends.fake import FakeEngine

        return FakeEngine()
    with importing():
        from agentcho.runner.engine import Engine

    return Engine.load(
        config.model,
        config.device,
        config.dtype,
        config.adapter,
        merge=config.merge,
        device_map=config.device_map,
        weights=config.weights,
        kv_dtype=config.kv_dtype,
        disk_tokens=int(config.disk_tokens * share),
        keep_cache=config.keep_cache,
        plain_markers=required_markers(config.policy, config.plain_markers),
        template_differs=config.template_differs,
        chat_template_kwargs=of_option(config.chat_template_kwargs),
        share=share,
        tell=tell,
        threads=config.threading,
    )
