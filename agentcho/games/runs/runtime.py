"""Plays the games of a run side by side on its models, and completes their record, however the run ends.

The models are loaded only when a run needs them. Independent of the terminal.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import NamedTuple, TypeVar, TypeVarTuple, Unpack, cast

import anyio
import anyio.from_thread
import anyio.lowlevel

from agentcho.config import VLLM, RunConfig
from agentcho.errors import AudienceError, ConfigError, GamesFailed, ModelNotFound, TaskError, amount, nearest
from agentcho.events import GameOver
from agentcho.extras import importing
from agentcho.games.play.game_faults import fault
from agentcho.games.play.game_models import LoadedEngines
from agentcho.games.runs import library
from agentcho.games.runs.event_loops import playing_loop
from agentcho.games.runs.loading import (
    EngineSource,
    as_engines,
    fingerprints,
    in_vllm,
    load_together,
    remote,
    speculate,
    teach_words,
    tell_differences,
    tell_thinking,
    tell_unfinished,
    tell_unread,
    threads_of,
)
from agentcho.games.runs.recording import RecordingSink
from agentcho.games.runs.request import GameSelection, Resumption, RunRequest
from agentcho.games.runs.resume import (
    check_asked,
    check_engine,
    loading_config,
    recorded_entries,
    settled_calls,
    typed_before,
    unfinished_games,
)
from agentcho.games.runs.run import LOG, FailedGame, Run, package_of, stopped
from agentcho.protocol.call import EnginePort
from agentcho.protocol.forward_costs import ForwardCosts
from agentcho.protocol.progress import ProgressCallback, no_progress
from agentcho.protocol.text_calls import TextPort
from agentcho.protocol.variables import of_option
from agentcho.provenance.message_boundaries import check_markers, required_markers
from agentcho.records import writer_lock
from agentcho.records.files import check_folder
from agentcho.records.record import RunRecord, SavedRun
from agentcho.records.transcript import TranscriptEntry
from agentcho.scenario import Scenario, recorded_options
from agentcho.tasks import Problem, TaskSet, task_set
from agentcho.tasks.mathematics import require_verifier

ENGINE = logging.getLogger("agentcho.engine")
OUR_MODELS = ("fake", "understudy", "smollm2")
"""Names of agentcho's own models, which are not on the Hugging Face hub."""
T = TypeVar("T")
Args = TypeVarTuple("Args")


class RunResult(NamedTuple):
    """The result of a run.

    Attributes:
        games: The games that ended, by number.
        steps: Number of forward passes.
        interrupted: Whether the run was interrupted.
        errors: Errors that ended games, by number, in the order in which they failed.
        record: Folder of the record. None if there is none.
        seconds: How long the games were played, without the loading of models in this process.
    """

    games: tuple[GameOver, ...]
    steps: int
    interrupted: bool
    errors: dict[int, FailedGame]
    record: Path | None
    seconds: float = 0.0

    @property
    def error(self) -> BaseException | None:
        """The first error that ended a game. None if there was none."""
        return next((failed.error for failed in self.errors.values()), None)

    def check(self, of: int) -> None:
        """Raise `GamesFailed` if errors ended some of `of` games. It lists them."""
        if self.errors:
            faults = {game: failed.fault for game, failed in self.errors.items()}
            frames = {game: found.frames for game, found in faults.items()}
            raise GamesFailed({game: str(found) for game, found in faults.items()}, of, self.record, frames)


def play(request: RunRequest) -> RunResult:
    """Play the games of a run until all are over, and block meanwhile.

    Ctrl-C stops the run, with everything said so far in the record. An error of one game ends that game and is
    returned; the other games continue unless `on_failure` says otherwise. A resumed run plays the games that are not
    over, or that an error ended, each from its beginning with its recorded words.

    Args:
        request: The run.

    Returns:
        The result.

    Raises:
        ResumeMismatch: The resumed run was played with other options or code. A game that departs from its record ends
            with the same error.
        RecordInUse: Another process is writing the record of the resumed run.
        AudienceError: At the end, if a person was to play an agent that no game has cast.
    """
    request = request.checked()
    if request.resume is not None:
        return _go_on(request, request.resume)
    tasks = checked(request)
    loaded = models_of(request)
    with open_run(request, tasks, loaded) as (run, record):
        return recorded(record, run, _play(run))


def checked(request: RunRequest) -> TaskSet | None:
    """Return the tasks of a run, and check that its record can be written."""
    tasks = tasks_of(request.scenario, request.config)
    if request.out is not None:
        check_folder(request.out)
    return tasks


@contextmanager
def open_run(
    request: RunRequest, tasks: TaskSet | None, loaded: LoadedEngines
) -> Iterator[tuple[Run, RunRecord | None]]:
    """A context in which a run is played, with its record open if it has one."""
    if request.out is None:
        yield Run(request, tasks, loaded, RecordingSink(None, request.sink)), None
        return
    scenario, config = request.scenario, request.config
    engine, others = fingerprints(loaded)
    with RunRecord.create(
        request.out,
        scenario.name,
        recorded_options(scenario),
        config,
        engine,
        None if tasks is None else tasks.digest,
        request.at_once,
        request.named,
        library.sources(scenario, request.find_agent),
        others,
        speculate(config, loaded),
    ) as record:
        yield Run(request, tasks, loaded, RecordingSink(record, request.sink)), record


def _go_on(request: RunRequest, resumption: Resumption) -> RunResult:
    """Play the games that a recorded run lacks."""
    saved = SavedRun(resumption.saved.path)
    scenario = request.scenario
    config = request.config
    used, tasks = library.sources(scenario, request.find_agent), tasks_of(scenario, config)
    options, digest = recorded_options(scenario), None if tasks is None else tasks.digest
    check_asked(saved, scenario.name, options, config, digest, used, resumption.changed)
    before = recorded_entries(saved)
    calls = settled_calls(saved, before, resumption.redo, resumption.skip)
    writer_lock.check(saved.path / writer_lock.NAME)
    check_folder(saved.path)
    loaded = models_of(request)
    check_engine(saved, *fingerprints(loaded))
    with RunRecord.go_on(saved, used) as record:
        selection = GameSelection(
            unfinished_games(saved), before=before, typed=typed_before(saved, before), calls=calls, begun=saved.begun()
        )
        for model in (loaded.engine, *loaded.others.values()):
            teach_recorded_words(model, chain.from_iterable(before.values()))
        going_on = replace(request, selection=selection, at_once=request.at_once or saved.info.at_once)
        run = Run(going_on, tasks, loaded, RecordingSink(record, request.sink))
        return recorded(record, run, _play(run))


def teach_recorded_words(engine: EnginePort, entries: Iterable[TranscriptEntry]) -> None:
    """Teach an engine the words that it is to say again, if it only knows words that it has met (the fake engine)."""
    teach_words(engine, ((entry.message.header, entry.message.text) for entry in entries))


def recorded(record: RunRecord | None, run: Run, came_to: RunResult) -> RunResult:
    """Close the record of a run, if it has one, and return the result."""
    if record is None:
        return _all_met(run, came_to)
    record.most = max(run.most, record.most or 0)
    record.close("interrupted" if came_to.interrupted else "failed" if came_to.errors else "done")
    return _all_met(run, came_to._replace(record=record.path))


def _all_met(run: Run, played: RunResult) -> RunResult:
    """Return the result of a run. Raises `AudienceError` if a person was to play an agent that no game has cast."""
    absent = [name for name in run.config.people if name not in run.met]
    if absent and not played.interrupted and any(not game.failed for game in played.games):
        kept = "" if played.record is None else f". All games are over and recorded: {played.record}"
        raise AudienceError(f"no agent is named {' or '.join(absent)}, which a person is to play{kept}", run.met)
    return played


def _play(run: Run) -> RunResult:
    tell_begins(run)
    try:
        blocking(run.play)
        interrupted = run.interrupted
    except KeyboardInterrupt:
        interrupted = True
    except SystemExit as exit:  # raised by a task that a game started, which ends the loop
        raise stopped(str(fault(exit, package_of(run.scenario)))) from exit
    return result(run, interrupted)


def tell_begins(run: Run) -> None:
    """Log that a run begins."""
    LOG.info("%s begins: %d games, %s, %s", run.scenario.name, run.config.games, run.config.mode, run.config.leakage)


def result(run: Run, interrupted: bool) -> RunResult:
    """Return the result of a run that is over."""
    games = tuple(run.finished[index] for index in sorted(run.finished))
    name, end = run.scenario.name, "is interrupted" if interrupted else "is over"
    LOG.info("%s %s: %d games, %d of them failed, %d steps", name, end, len(games), len(run.errors), run.steps)
    return RunResult(games, run.steps, interrupted, run.errors, None, run.seconds)


def blocking(work: Callable[[Unpack[Args]], Awaitable[T]], *args: *Args) -> T:
    """Run async work to its end from synchronous code.

    If an event loop is already running, as in a notebook, it runs in a separate thread, and a `KeyboardInterrupt` of
    the caller cancels it and is raised once it has ended.
    """
    if not _in_a_loop():
        return _to_its_end(work, *args)
    stopped, scopes = threading.Event(), list[tuple[anyio.CancelScope, anyio.lowlevel.EventLoopToken]]()

    async def until_stopped() -> T | None:
        with anyio.CancelScope() as scope:
            scopes.append((scope, anyio.lowlevel.current_token()))
            return None if stopped.is_set() else await work(*args)
        return None

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(_to_its_end, until_stopped)
        try:
            return cast(T, done.result())
        except KeyboardInterrupt:
            stopped.set()
            for scope, token in scopes:
                with suppress(RuntimeError):  # its loop has ended
                    anyio.from_thread.run_sync(scope.cancel, token=token)
            raise


def _to_its_end(work: Callable[[Unpack[Args]], Awaitable[T]], *args: *Args) -> T:
    """Run async work. A `KeyboardInterrupt` in it is raised after the event loop has ended.

    Raised from the first task, it would end the loop before its threads have stopped, and the process would wait for
    them forever.
    """
    interrupts = list[KeyboardInterrupt]()

    async def kept() -> T | None:
        try:
            with playing_loop():
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
    """Return the tasks that a run's games draw from, or None if the scenario takes none. Needs no model.

    Raises:
        TaskError: The tasks cannot be read, are of the wrong kind, or are too few for all games.
        ExtraMissing: A library that checks their answers is not installed.
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
    drawn = f"{games} games draw {each} each, {games * each} in all" if games > 1 else f"the game draws {each}"
    most = size // max(1, each)
    fewer = f"play at most {amount(most, 'games')}, or give more tasks" if most else "give more tasks"
    return TaskError(tasks.name, None, f"the set has {amount(size, 'tasks')}, and {drawn}; {fewer}")


def load_models(
    config: RunConfig,
    engine: EnginePort | None = None,
    others: Mapping[str, EnginePort | TextPort] = MappingProxyType({}),
    tell: ProgressCallback = no_progress,
    costs: Mapping[str, ForwardCosts] = MappingProxyType({}),
) -> LoadedEngines:
    """Load all models of a run that are not given. Raises if one of them cannot be loaded.

    `costs` are the recorded costs of their forward passes.
    """
    given = as_engines(others)
    if config.models:
        return checked_models(config, load_together(config, engine, given, tell), costs)
    return checked_models(config, LoadedEngines(engine or load_engine(config, tell), given), costs)


def models_of(request: RunRequest) -> LoadedEngines:
    """Return the models of a run, loaded as its record says if it is resumed."""
    config, costs = request.config, {}
    if request.resume is not None:
        saved = request.resume.saved
        config, costs = loading_config(saved, config), saved.info.costs
    try:
        return load_models(config, request.engine, request.others, request.tell, costs)
    except KeyboardInterrupt as interrupt:
        more = "" if request.resume is None else " more"
        interrupt.add_note(f"interrupted while the model was being loaded: nothing{more} was played or recorded")
        raise


def load_share(config: RunConfig, engine: EnginePort | None, share: float) -> LoadedEngines:
    """Load all models of a run, with this share of the memory that one process would take for encodings."""
    if config.models:
        return checked_models(config, load_together(config, engine, {}, no_progress, share))
    return checked_models(config, LoadedEngines(engine or load_engine(config, share=share), {}))


def checked_models(
    config: RunConfig, loaded: LoadedEngines, costs: Mapping[str, ForwardCosts] = MappingProxyType({})
) -> LoadedEngines:
    """Return the models of a run, after checking that they separate messages as required and enabling speculation."""
    required = required_markers(config.policy, config.plain_markers)
    check_markers(loaded.engine.framing.plain, required, config.model)
    for name, other in loaded.others.items():
        check_markers(other.framing.plain, required, name)
    speculate(config, loaded, costs)
    return loaded


def load_engine(config: RunConfig, tell: ProgressCallback = no_progress, share: float = 1) -> EnginePort:
    """Load the engine that a run asks for. "fake" is the scripted engine of `agentcho.testing`, without a model.

    `tell` receives the progress. `share` is the share of the memory that one process would take for encodings.
    """
    began = perf_counter()
    ENGINE.info("loading %s", config.model)
    try:
        engine = _load(config, tell, share)
    except Exception as error:
        ENGINE.error("%s was not loaded: %s", config.model, type(error).__name__)
        raise
    ENGINE.info("loaded %s, %.1f s%s", config.model, perf_counter() - began, threads_of(engine))
    tell_differences(config.model, engine, config.mode)
    tell_thinking(config.model, engine, config.max_tokens)
    tell_unfinished(config.adapter)
    tell_unread(config.model, engine, config.chat_template_kwargs)
    return engine


def _refuse_misspelt(model: str) -> None:
    """Raise `ConfigError` for a name similar to one of `OUR_MODELS`, because asking the hub can take half a minute, and
    `ModelNotFound` for a path to nothing."""
    if (
        model.startswith(("./", "../", "~", "/"))
        and not model.endswith(".gguf")
        and not os.path.exists(os.path.expanduser(model))
    ):
        raise ModelNotFound(model, "the folder does not exist")
    if "/" not in model and model not in OUR_MODELS and not Path(model).exists():
        like = nearest(model, OUR_MODELS)
        if like:
            raise ConfigError(f"no model {model!r}; {like} A Hugging Face id is written OWNER/NAME")


def _load(config: RunConfig, tell: ProgressCallback, share: float) -> EnginePort:
    if config.own.served:
        return remote(config.own, config.model)
    _refuse_misspelt(config.model)
    if config.model == "fake":
        from agentcho.engine.fake.fake import FakeEngine

        return FakeEngine()
    if config.engine == VLLM:
        source = EngineSource(config.own)
        return in_vllm(source, config, required_markers(config.policy, config.plain_markers), share)
    with importing():
        from agentcho.runner.engine import Engine

    return Engine.load(
        config.model,
        config.device,
        config.dtype,
        config.adapter,
        merge=config.merge,
        context=config.context,
        device_map=config.device_map,
        **config.quantization,
        disk_tokens=int(config.disk_tokens * share),
        keep_cache=config.keep_cache,
        plain_markers=required_markers(config.policy, config.plain_markers),
        template_differs=config.template_differs,
        chat_template_kwargs=of_option(config.chat_template_kwargs),
        share=share,
        tell=tell,
        threads=config.threading,
    )
