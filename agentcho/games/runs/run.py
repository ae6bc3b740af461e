"""The games of a run, side by side: what is done about one that fails, and who receives their events.

The log, under `agentcho`, gets ids, counts, times and classes of errors, and no texts of messages. Independent of which
engine is loaded and of where a record is.
"""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from math import inf
from time import perf_counter
from typing import NamedTuple, TypeVarTuple, Unpack

import anyio

from agentcho.choreography.quiescence import ended_from_outside
from agentcho.config import RunConfig
from agentcho.errors import AgentchoError, ScenarioError
from agentcho.events import Began, Calling, Ended, Event, GameOver, Joined, Stepped, Typed
from agentcho.games.play.game import Game
from agentcho.games.play.game_faults import GameFault, fault, told
from agentcho.games.play.game_models import LoadedEngines, RunModels, open_models
from agentcho.games.play.journal import BegunCalls, RecordedLines
from agentcho.games.runs.limiter import GameLimiter
from agentcho.games.runs.recording import GAME, RecordingSink, log
from agentcho.games.runs.request import RunRequest
from agentcho.integrations.endpoints.text_engine import TextEngine
from agentcho.message import EVERYONE
from agentcho.protocol.text_calls import TextPort
from agentcho.scenario import Scenario
from agentcho.tasks import Task, TaskSet

LOG = logging.getLogger("agentcho.run")
BUSY = 2
"""Running games per concurrent request to a model behind an API: while one game waits, another sends its request."""
QUIET = 60.0
"""Seconds without progress after which the log lists who waits, unless a person or a server may be waited for."""
CLOSING = 5.0
"""Seconds that an endpoint may take to close its connections."""
Args = TypeVarTuple("Args")


class FailedGame(NamedTuple):
    """A game that an error ended: the raised error, its fault, and the number of the attempt if it departed from the
    record."""

    error: BaseException
    fault: GameFault
    departed: int | None = None


def _transient(error: BaseException) -> bool:
    """Return whether another attempt may succeed."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_transient, error.exceptions))
    return error.transient if isinstance(error, AgentchoError) else isinstance(error, ConnectionError | TimeoutError)


class Run:
    """One running run: its request, its tasks, its models, and its listener.

    An error in the sink (a full disk, a closed pipe) stops the run, and is not an error of a game.
    """

    def __init__(self, request: RunRequest, tasks: TaskSet | None, loaded: LoadedEngines, sink: RecordingSink) -> None:
        self.request = request
        self.scenario = request.scenario
        self.config = request.config
        self._tasks = tasks
        self._loaded = loaded
        self._sink = sink
        selection = request.selection
        self._said = {game: [*entries] for game, entries in selection.before.items()}
        self._typed = {game: {**words} for game, words in selection.typed.items()}
        self._calls = dict(selection.calls)
        self._people, self._cast = request.people, dict[int, dict[str, None]]()
        self.met = set[str]()
        self.finished: dict[int, GameOver] = {}
        self.errors: dict[int, FailedGame] = {}
        self.steps = self.most = 0
        self.seconds = 0.0
        self.interrupted = False
        self._sink_error: Exception | None = None
        self._flush = partial(self._call_sink, sink.flush)

    async def play(self) -> None:
        """Play its games, at most as many side by side as requested. None means as many as `GameLimiter` lets in."""
        await self._to_their_end(self._play)

    async def join(self, models: RunModels, limiter: GameLimiter) -> None:
        """Play its games on models that other runs use too, as the common limiter lets them begin."""
        await self._to_their_end(self._together, models, limiter)

    async def visit(self, models: RunModels, all: GameLimiter) -> None:
        """Play its games, at most as many side by side as requested, on models that other runs use too.

        The common limiter of all runs lets them begin. `steps` counts all steps made meanwhile, for any run.
        """
        await self._to_their_end(self._visit, models, all)

    async def _to_their_end(self, play: Callable[[Unpack[Args]], Awaitable[None]], *args: *Args) -> None:
        began = perf_counter()
        try:
            with anyio.CancelScope() as self._all:
                await play(*args)
        except Exception:
            if self._sink_error is None:
                raise
        except BaseExceptionGroup as group:  # trio raises Ctrl-C in one
            if group.split(KeyboardInterrupt)[1] is not None:
                raise
            raise KeyboardInterrupt from None
        finally:
            self.seconds = perf_counter() - began
        if self._sink_error is not None:
            raise self._sink_error
        if not self._all.cancel_called and not self.finished.keys() >= set(self._numbers):
            raise stopped("it cancelled the task that it runs in")

    @property
    def _numbers(self) -> Sequence[int]:
        numbers = self.request.selection.numbers
        return self.config.numbers if numbers is None else numbers

    async def _play(self) -> None:
        async with AsyncExitStack() as stack:
            quiet_after = inf if self._people else QUIET
            models = await stack.enter_async_context(open_endpoints(self._loaded, self.config, quiet_after))
            limiter = GameLimiter(models.own.tasks, self._together_at)
            limiter.eager = any(isinstance(engine, TextEngine) for engine in self._loaded.others.values())
            limiter.follow(models)
            await self._together(models, limiter)

    async def _visit(self, models: RunModels, all: GameLimiter) -> None:
        most = self._together_at or max(1, len(self._numbers))
        await self._together(models, GameLimiter(models.own.tasks, most, all))

    @property
    def _together_at(self) -> int | None:
        """The maximum number of games side by side. None means as many as `GameLimiter` lets in."""
        if self.request.at_once is None and isinstance(self._loaded.engine, TextEngine):
            return BUSY * self.config.own.concurrency
        return self.request.at_once

    async def _together(self, models: RunModels, limiter: GameLimiter) -> None:
        before, self._limiter = models.steps, limiter
        for each in models.choreographers if self._sink.watch else ():
            each.watchers.append(self._stepped)
        try:
            async with AsyncExitStack() as stack:
                for person in dict.fromkeys(self._people.values()):
                    await stack.enter_async_context(person.present())
                await models.own.tasks.together(*(self._game(models, index, limiter) for index in self._numbers))
        finally:
            self.steps, self.most = models.steps - before, limiter.most
            for each in models.choreographers if self._sink.watch else ():
                each.watchers.remove(self._stepped)

    def _stepped(self, step: Stepped) -> None:
        if self._sink.watch is not None:
            self._call_sink(self._sink.watch, step)

    async def _game(self, models: RunModels, index: int, limiter: GameLimiter) -> None:
        async with limiter.slot():
            began, left = perf_counter(), self.request.on_failure.retries
            while (failed := await self._attempt(models, index)) is not None:
                if left == 0 or not _transient(failed.error) or self._recorded(index).open_calls:
                    self._give_up(index, failed, perf_counter() - began)
                    return
                left -= 1

    async def _attempt(self, models: RunModels, index: int) -> FailedGame | None:
        """Play a game with its recorded words. Returns the error that ended it, if one did."""
        recorded = self._recorded(index)
        try:
            await self._new_game(models, index, recorded).play(copy.copy(self.scenario))
        except KeyboardInterrupt:  # it would end the event loop, with a warning
            self.interrupted = True
            self._all.cancel()
        except BaseException as error:
            if self._sink_error is not None or ended_from_outside(error):
                raise
            departed = None if recorded.departure is None else recorded.attempt
            failed = FailedGame(error, fault(error, package_of(self.scenario)), departed)
            GAME.error("game %d: %s at %s", index, failed.fault.kind, failed.fault.where or "no line of the user's")
            return failed
        return None

    def _new_game(self, models: RunModels, index: int, recorded: RecordedLines) -> Game:
        seed = game_seed(self.config.seed, index)
        tasks = () if self._tasks is None else draw_tasks(self._tasks, index, self.scenario.draws())
        return Game(
            models.own,
            index,
            seed,
            self.config,
            sink=self._emit,
            find_agent=self.request.find_agent,
            tasks=tasks,
            forced=self.request.selection.forced(index),
            recorded=recorded,
            reuse=self.config.policy,
            flush=self._flush,
            confirmed=self._sink.confirmed,
            others=models.others,
            people=self._people,
        )

    def _recorded(self, index: int) -> RecordedLines:
        """Return the recorded lines of earlier attempts at a game."""
        said, typed = self._said.setdefault(index, []), self._typed.setdefault(index, {})
        begun = self.request.selection.begun.get(index, 0)
        return RecordedLines(index, said, typed, self._calls.get(index), begun=begun)

    def _give_up(self, index: int, failed: FailedGame, seconds: float) -> None:
        self.errors[index] = failed
        said = [entry.message for entry in self._said.get(index, ())]
        private = [message.text for message in said if message.audience != EVERYONE]
        ended = told(failed.error, failed.fault, private, self._cast.get(index, {}))
        fault = failed.fault
        over = GameOver(index, None, {}, ended, seconds, fault.error, fault.traceback, where=fault.where)
        self._emit(over._replace(departed=failed.departed))
        if self.request.on_failure.fail_fast:
            self._all.cancel()

    def _emit(self, event: Event) -> None:
        if self._sink_error is not None:
            raise self._sink_error
        if isinstance(event, GameOver):
            self.finished[event.game] = event
            self._said.pop(event.game, None)
        elif isinstance(event, Calling) and not event.idempotent:
            self._calls[event.game] = self._calls.get(event.game, BegunCalls()).with_begun(event.id)
        elif isinstance(event, Ended) and (said := self._said.get(event.entry.message.game)) is not None:
            said.append(event.entry)
        elif isinstance(event, Joined):
            self._cast.setdefault(event.game, {})[event.agent] = None
        elif isinstance(event, Typed):
            self._typed[event.game][event.id] = event.text
        log(event)
        self._call_sink(self._sink, event)
        if self._people and isinstance(event, GameOver):
            self._tell_over(event)
        elif self._people and isinstance(event, Began) and event.author in self._people:
            self._limiter.rests()

    def _tell_over(self, over: GameOver) -> None:
        """Tell people that a game is over, after all other listeners."""
        cast = self._cast.pop(over.game, {})
        for name, person in self._people.items():
            with suppress(Exception):  # an error in a listener does not change a game that is over
                person.over(over.game, name, over) if name in cast else person.absent(over.game, name, tuple(cast))
        self.met.update(cast)

    def _call_sink(self, listen: Callable[[Unpack[Args]], None], *args: *Args) -> None:
        try:
            listen(*args)
        except Exception as error:
            self._sink_error = error
            self._all.cancel()
            raise


@asynccontextmanager
async def open_endpoints(
    loaded: LoadedEngines, config: RunConfig, quiet_after: float = QUIET
) -> AsyncIterator[RunModels]:
    """A context in which the models of a run are open, those behind APIs included.

    Raises `EngineBusy` if one of the engines has another owner.
    """
    engines = {id(each): each for each in (loaded.engine, *loaded.others.values())}.values()
    remote = [each.port for each in engines if isinstance(each, TextEngine)]
    async with AsyncExitStack() as stack:
        for port in remote:
            await stack.enter_async_context(closing_endpoint(port))
        yield await stack.enter_async_context(open_models(loaded, config, inf if remote else quiet_after))


@asynccontextmanager
async def closing_endpoint(port: TextPort) -> AsyncIterator[None]:
    """A context that closes the connections of an endpoint when it ends, also on errors."""
    try:
        yield
    finally:
        with anyio.move_on_after(CLOSING, shield=True):
            await port.aclose()


def stopped(how: str) -> ScenarioError:
    """Return the error for game code that stopped more than its own game."""
    return ScenarioError(
        f"the code of a game stopped the whole run: {how}. Let it raise in `play`, which ends that game alone; "
        "what was over is kept, and --resume goes on",
        code=1,
    )


def draw_tasks(tasks: TaskSet, index: int, count: int) -> tuple[Task, ...]:
    """Return the tasks of one game."""
    return tuple(tasks[index * count + place] for place in range(count))


def game_seed(seed: int, index: int) -> int:
    """Return the seed of one game, from the run's seed and the game's number alone."""
    digest = hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8, person=b"agentcho.game").digest()
    return int.from_bytes(digest) >> 1


def package_of(scenario: Scenario) -> str:
    """Return the package that a scenario belongs to, unless that is agentcho."""
    top = type(scenario).__module__.split(".", 1)[0]
    return "" if top in ("agentcho", "__main__") else top
