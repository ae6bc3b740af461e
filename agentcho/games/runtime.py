"""Plays the games of a run side by side on one engine, and keeps their record whole, however the run ends.

Does not know: the terminal, where a scenario came from. The engine is loaded when a run needs it, not before.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import NamedTuple, TypeVar, TypeVarTuple, Unpack

import anyio

from agentcho.agent import Agent
from agentcho.calls.call import EnginePort
from agentcho.choreography import log as journal
from agentcho.choreography.choreographer import Choreographer
from agentcho.choreography.quiescence import ends_all
from agentcho.config import RunConfig
from agentcho.errors import CallFailed, EngineFailed, GamesFailed, Overloaded, ScenarioError, TaskError
from agentcho.events import Ended, Event, Over, Sink
from agentcho.flow.markers import asked_of, check_markers
from agentcho.games import library
from agentcho.games.door import Door
from agentcho.games.faults import Fault, fault, told
from agentcho.games.game import Forced, Game
from agentcho.games.recorded import Recorded
from agentcho.games.recording import Told
from agentcho.games.resume import Changed, as_taken, check_asked, check_engine, lacking, recorded
from agentcho.progress import Tell, unheard
from agentcho.records import writer
from agentcho.records.files import check_folder
from agentcho.records.record import RunRecord, SavedRun
from agentcho.records.transcript import Entry
from agentcho.scenario import Scenario
from agentcho.tasks import Problem, Task, TaskSet, task_set
from agentcho.tasks.mathematics import require_verifier

T = TypeVar("T")
Args = TypeVarTuple("Args")
FindAgent = Callable[[str], type[Agent]]


class Failed(NamedTuple):
    """A game that an error ended: the error as it was raised, and where it came from."""

    error: BaseException
    fault: Fault


class Played(NamedTuple):
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


class Part(NamedTuple):
    """Which games of a run to play (None: all), and the words to force in each: ids of what is said, by message.
    `before` has what was said in games that were begun already."""

    numbers: tuple[int, ...] | None = None
    forced: Callable[[int], Forced] = lambda game: {}
    before: Mapping[int, Sequence[Entry]] = MappingProxyType({})


class Care(NamedTuple):
    """What is done about games that fail: `fail_fast` stops the run with the first, `retries` says how often a game is
    played again that an error of the engine or of an endpoint ended (`PASSING`). Any other would come again."""

    fail_fast: bool = False
    retries: int = 0


PASSING = (EngineFailed, CallFailed, Overloaded, ConnectionError, TimeoutError)


class Run:
    """One run under way: what is to be played, on what, and who listens.

    What a listener raises (a full disk, a reader that went away) stops the run, and is no game's error.
    """

    def __init__(
        self,
        scenario: Scenario,
        config: RunConfig,
        tasks: TaskSet | None,
        engine: EnginePort,
        sink: Told,
        find_agent: FindAgent,
        part: Part,
        care: Care,
    ) -> None:
        self._part, self._care = part, care
        self._said = {game: [*entries] for game, entries in part.before.items()}
        self._scenario, self._config, self._tasks, self._engine = scenario, config, tasks, engine
        self._sink, self._find = sink, find_agent
        self.finished: dict[int, Over] = {}
        self.errors: dict[int, Failed] = {}
        self.steps = self.most = 0
        self.interrupted = False
        self._deaf: Exception | None = None
        self._flush = partial(self._heeding, sink.flush)

    async def play(self, at_once: int | None) -> None:
        """Play its games, `at_once` of them side by side (None: as `Door` lets them in)."""
        numbers = range(self._config.games) if self._part.numbers is None else self._part.numbers
        try:
            with anyio.CancelScope() as self._all:
                await self._play(numbers, at_once)
        except Exception:
            if self._deaf is None:
                raise
        if self._deaf is not None:
            raise self._deaf
        if not self._all.cancel_called and not self.finished.keys() >= set(numbers):
            raise _stopped("it cancelled the task that it runs in")

    async def _play(self, numbers: Sequence[int], at_once: int | None) -> None:
        async with Choreographer(self._engine, *self._config.reuse) as choreographer:
            door = Door(choreographer.turns, at_once)
            choreographer.stepped = door.stepped
            games = (self._game(choreographer, index, door) for index in numbers)
            try:
                await choreographer.turns.together(*games)
            finally:
                self.steps, self.most = choreographer.steps, door.most

    async def _game(self, choreographer: Choreographer, index: int, door: Door) -> None:
        async with door.inside():
            began, left = perf_counter(), self._care.retries
            while (failed := await self._attempt(choreographer, index)) is not None:
                if left == 0 or not isinstance(failed.error, PASSING):
                    self._give_up(index, failed, perf_counter() - began)
                    return
                left -= 1

    async def _attempt(self, choreographer: Choreographer, index: int) -> Failed | None:
        """Play a game, with the words that it said before. The error that ended it, if one did."""
        try:
            await self._begun(choreographer, index).play(copy.copy(self._scenario))
        except KeyboardInterrupt:  # an event loop would end with it, and complain
            self.interrupted = True
            self._all.cancel()
        except BaseException as error:
            if self._deaf is not None or ends_all(error):
                raise
            failed = Failed(error, fault(error, _package(self._scenario)))
            journal.failed(index, failed.fault.kind, failed.fault.where)
            return failed
        return None

    def _begun(self, choreographer: Choreographer, index: int) -> Game:
        seed = game_seed(self._config.seed, index)
        tasks = () if self._tasks is None else drawn(self._tasks, index, self._scenario.draws())
        said = self._said.setdefault(index, [])
        return Game(
            choreographer,
            index,
            seed,
            self._config,
            sink=self._tell,
            find_agent=self._find,
            tasks=tasks,
            forced=self._part.forced(index),
            recorded=Recorded(index, said),
            reuse=self._config.reuse,
            flush=self._flush,
        )

    def _give_up(self, index: int, failed: Failed, seconds: float) -> None:
        self.errors[index] = failed
        ended = told(failed.error, failed.fault)
        self._tell(Over(index, None, {}, ended, seconds, failed.fault.error, failed.fault.traceback))
        if self._care.fail_fast:
            self._all.cancel()

    def _tell(self, event: Event) -> None:
        if self._deaf is not None:
            raise self._deaf
        if isinstance(event, Over):
            self.finished[event.game] = event
            self._said.pop(event.game, None)
        elif isinstance(event, Ended) and (said := self._said.get(event.entry.message.game)) is not None:
            said.append(event.entry)
        journal.hear(event)
        self._heeding(self._sink, event)

    def _heeding(self, listen: Callable[[Unpack[Args]], None], *args: *Args) -> None:
        try:
            listen(*args)
        except Exception as error:
            self._deaf = error
            self._all.cancel()
            raise


def play(
    scenario: Scenario,
    config: RunConfig | None = None,
    *,
    engine: EnginePort | None = None,
    sink: Sink | None = None,
    out: Path | None = None,
    at_once: int | None = None,
    find_agent: FindAgent | None = None,
    part: Part | None = None,
    care: Care | None = None,
    asked: str | None = None,
    tell: Tell = unheard,
) -> Played:
    """Play `config.games` games of a scenario, or a `part` of them, from a plain thread. Blocks until all are over.

    `out` is the folder of runs to record in (None: no record), `asked` how the scenario was named, for the record.
    `sink` hears every event, on the event loop; `tell` how far the loading of a model is. Ctrl-C stops the run, with
    everything said so far in the record. An error of one game ends that game, is returned, and leaves the others alone,
    unless `care` says otherwise. What `sink` raises stops the run.
    """
    config = config or RunConfig()
    tasks = tasks_of(scenario, config)
    if out is not None:
        check_folder(out)
    engine = engine or load_engine(config, tell)
    check_markers(engine.framing.plain, asked_of(config.reuse, config.plain_markers), config.model)
    run = partial(Run, scenario, config, tasks, engine, find_agent=find_agent or library.agent, care=care or Care())
    if out is None:
        return _play(run(sink=Told(None, sink), part=part or Part()), at_once)
    options = scenario.options.model_dump(mode="json")
    digest = None if tasks is None else tasks.digest
    with RunRecord.create(
        out, scenario.name, options, config, engine.fingerprint, digest, at_once, asked, library.sources(type(scenario))
    ) as record:
        return _recorded(record, run(sink=Told(record, sink), part=part or Part()), at_once)


def resume(
    saved: SavedRun,
    scenario: Scenario,
    config: RunConfig | None = None,
    *,
    engine: EnginePort | None = None,
    sink: Sink | None = None,
    at_once: int | None = None,
    find_agent: FindAgent | None = None,
    care: Care | None = None,
    changed: Changed = "refuse",
    tell: Tell = unheard,
) -> Played:
    """Play what a recorded run lacks: games that are not over, or that an error ended, each begun anew with the words
    that it said before. `config` and `at_once` default to the run's own.

    `ResumeMismatch` where it was played otherwise, `RecordInUse` where somebody writes it; a game that departs from
    what it said ends by `ResumeMismatch`. Everything else as in `play`.
    """
    config, used = config or saved.info.config, library.sources(type(scenario))
    tasks = tasks_of(scenario, config)
    options = scenario.options.model_dump(mode="json")
    check_asked(saved, scenario.name, options, config, None if tasks is None else tasks.digest, used, changed)
    writer.check(saved.path / writer.NAME)
    check_folder(saved.path)
    engine = engine or load_engine(as_taken(saved, config), tell)
    check_engine(saved, engine.fingerprint)
    check_markers(engine.framing.plain, asked_of(config.reuse, config.plain_markers), config.model)
    with RunRecord.go_on(saved, used) as record:
        part = Part(lacking(saved), before=recorded(saved))
        meet(engine, chain.from_iterable(part.before.values()))
        find, care = find_agent or library.agent, care or Care()
        run = Run(scenario, config, tasks, engine, Told(record, sink), find, part, care)
        return _recorded(record, run, at_once or saved.info.at_once)


def meet(engine: EnginePort, entries: Iterable[Entry]) -> None:
    """Let an engine meet the words that it is to say again, where it knows none that it has not met (the fake)."""
    if (known := getattr(engine, "meet", None)) is not None:
        for entry in entries:
            known(entry.message.header, entry.message.text)


def _recorded(record: RunRecord, run: Run, at_once: int | None) -> Played:
    played = _play(run, at_once)
    record.most = max(run.most, record.most or 0)
    record.close("interrupted" if played.interrupted else "failed" if played.errors else "done")
    return played._replace(record=record.path)


def _stopped(how: str) -> ScenarioError:
    """The code of a game ended more than its own game."""
    return ScenarioError(
        f"the code of a game stopped the whole run: {how}. Let it raise in `play`, which ends that game alone; "
        "what was over is kept, and --resume goes on",
        code=1,
    )


def _play(run: Run, at_once: int | None) -> Played:
    name, config = run._scenario.name, run._config
    journal.RUN.info("%s begins: %d games, %s, %s", name, config.games, config.mode, config.leakage)
    try:
        blocking(run.play, at_once)
        interrupted = run.interrupted
    except KeyboardInterrupt:
        interrupted = True
    except SystemExit as exit:  # of a task that a game started for itself: an event loop ends with it
        raise _stopped(str(fault(exit, _package(run._scenario)))) from exit
    games = tuple(run.finished[index] for index in sorted(run.finished))
    end = "is interrupted" if interrupted else "is over"
    journal.RUN.info("%s %s: %d games, %d of them failed, %d steps", name, end, len(games), len(run.errors), run.steps)
    return Played(games, run.steps, interrupted, run.errors, None)


def blocking(work: Callable[[Unpack[Args]], Awaitable[T]], *args: *Args) -> T:
    """Run async work to its end from plain code; in a thread of its own where an event loop runs already (a
    notebook)."""
    if not _in_a_loop():
        return anyio.run(work, *args)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: anyio.run(work, *args)).result()


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


def drawn(tasks: TaskSet, index: int, count: int) -> tuple[Task, ...]:
    """The tasks of one game."""
    return tuple(tasks[index * count + place] for place in range(count))


def load_engine(config: RunConfig, tell: Tell = unheard) -> EnginePort:
    """The engine that a run asks for; "fake" is the scripted one of `agentcho.testing`, without a model. `tell` hears
    how far it is."""
    with journal.loading(config.model):
        return _load(config, tell)


def _load(config: RunConfig, tell: Tell) -> EnginePort:
    if config.model == "fake":
        from agentcho.backends.fake import FakeEngine

        return FakeEngine()
    from agentcho.engine import Engine

    return Engine.load(
        config.model,
        config.device,
        config.dtype,
        config.adapter,
        merge=config.merge,
        device_map=config.device_map,
        plain_markers=asked_of(config.reuse, config.plain_markers),
        tell=tell,
    )


def game_seed(seed: int, index: int) -> int:
    """The seed of one game of a run: of the run's seed and the game's number alone."""
    digest = hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8, person=b"agentcho.game").digest()
    return int.from_bytes(digest) >> 1


def _package(scenario: Scenario) -> str:
    """The package that a scenario came in, where that is none of ours."""
    top = type(scenario).__module__.split(".", 1)[0]
    return "" if top in ("agentcho", "__main__") else top
