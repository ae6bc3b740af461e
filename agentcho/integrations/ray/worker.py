"""A worker: loads the engine, plays the games that it is dealt concurrently, and hands each over when it is over.

It writes no records. Independent of Ray and of other workers.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

import anyio
from anyio.from_thread import start_blocking_portal

from agentcho.config import RunConfig
from agentcho.errors import AgentchoError, RecordError
from agentcho.events import Called, Calling
from agentcho.games.play.game_faults import words
from agentcho.games.play.game_models import LoadedEngines, open_models
from agentcho.games.runs import library
from agentcho.games.runs.limiter import FIRST, GameLimiter
from agentcho.games.runs.loading import fingerprints, give_up, teach_words
from agentcho.games.runs.recording import RecordingSink
from agentcho.games.runs.request import FindAgent, GameSelection, OnFailure, RunRequest
from agentcho.games.runs.run import Run
from agentcho.games.runs.runtime import checked_models, load_share
from agentcho.integrations.ray.game_log import GameLog
from agentcho.integrations.ray.work import (
    Assignment,
    GameDone,
    ToolCallNote,
    WorkerHello,
    WorkerReady,
    WorkerRefused,
    WorkerReport,
    WorkSpec,
)
from agentcho.protocol.call import EnginePort
from agentcho.records.environment import versions
from agentcho.records.files import encoded_lines
from agentcho.records.transcript import TranscriptEntry
from agentcho.scenario import Scenario
from agentcho.tasks import TaskSet

LINGER = 0.1
"""Seconds to wait for further games to end before finished ones are handed over."""
NETWORK = ("device_map", "threading", "merge", "disk_tokens", "keep_cache")
"""Options that affect how a network is loaded, besides those of its model."""


def network(config: RunConfig) -> tuple[object, ...]:
    """What decides whether the models of a run are the ones that are loaded. Another adapter can be put onto the same
    network."""
    own = config.own.model_copy(update={"adapter": None})
    return own, *(getattr(config, name) for name in NETWORK), *config.models.items()


class Worker:
    """Takes one call at a time: `hello`, then for each piece of work `begin` and as many `exchange` calls as needed."""

    def __init__(self) -> None:
        self._loaded: LoadedEngines | None = None
        self._how: tuple[object, ...] = ()
        self._table: GameTable | None = None

    def hello(self) -> WorkerHello:
        """Identify this worker."""
        return WorkerHello(socket.gethostname(), os.getpid(), versions())

    def begin(self, work: WorkSpec, beside: int = 1) -> WorkerReady | WorkerRefused:
        """Prepare for the games of a piece of work; games of an earlier one are dropped. Loads the engine if needed.
        `beside`: the number of workers that share this machine."""
        self.end()
        try:
            scenario, find = _found(work)
            self._load(work.config, 1 / beside)
        except Exception as error:
            code = error.code if isinstance(error, AgentchoError) else 1
            return WorkerRefused(type(error).__name__, words(error), code)
        at_once = None if work.at_once is None else max(1, work.at_once // beside)
        assert self._loaded is not None
        self._table = GameTable(work, scenario, find, self._loaded, at_once)
        return WorkerReady(*fingerprints(self._loaded))

    def _load(self, config: RunConfig, share: float) -> None:
        """Load the models of a run, or keep the loaded ones. Another adapter is put onto the same network."""
        loads = network(config)
        how, engine = (*loads, config.adapter), None
        if self._loaded is not None and self._how == how:
            self._loaded = checked_models(config, self._loaded)
            return
        if self._loaded is not None and self._how[:-1] == loads and not config.models:
            engine = self._loaded.engine
            if hasattr(engine, "adapted"):
                engine = engine.adapted(config.adapter)
        self._give_up(engine)
        self._loaded = load_share(config, engine, share)
        self._how = how

    def _give_up(self, kept: EnginePort | None) -> None:
        """Unload the models, except for this engine, before others are loaded: both may not fit into memory."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None and kept is None:
            give_up(loaded)

    def exchange(self, deals: Sequence[Assignment], seconds: float) -> WorkerReport:
        """Take these games, wait until one is over or `seconds` have passed, and report."""
        assert self._table is not None, "exchange comes after begin"
        self._table.confirm()
        for deal in deals:
            self._table.take(deal)
        return self._table.report(seconds)

    def end(self) -> None:
        """Drop the games in progress."""
        table, self._table = self._table, None
        if table is not None:
            table.close()


def _found(work: WorkSpec) -> tuple[Scenario, FindAgent]:
    """Find the scenario and a finder of its agents, which imports each once: at once those that are cast by name, from
    the same source files as the driver's. `RecordError`: the files here differ."""
    found = library.scenario(work.scenario)(**work.options)
    find: FindAgent = cache(library.agent)
    for name in library.casts(found):
        find(name)
    here = sorted(library.sources(found, find).values())
    if work.sources and here != sorted(work.sources):
        raise RecordError(
            f"the source of {work.scenario} on this worker differs from the source where the run was "
            "started; install the same source on all machines"
        )
    return found, find


class GameTable:
    """The games of one piece of work, played concurrently on an event loop in its own thread until the table is
    closed."""

    def __init__(
        self, work: WorkSpec, scenario: Scenario, find_agent: FindAgent, loaded: LoadedEngines, at_once: int | None
    ) -> None:
        self._work, self._scenario, self._find = work, scenario, find_agent
        self._loaded, self._at_once = loaded, at_once
        self._over = SimpleQueue[GameDone | ToolCallNote | BaseException]()
        self._notes = 0
        self._reported = self._recorded = 0
        self._waiting: dict[int, anyio.Event] = {}
        self._left, self._playing = 0, set[anyio.CancelScope]()
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal())
            models = open_models(loaded, work.config)
            self._models = stack.enter_context(self._portal.wrap_async_context_manager(models))
            self._limiter = GameLimiter(self._models.own.tasks, at_once)
            self._limiter.follow(self._models)
            self._meet(work.met)
            self._open = stack.pop_all()

    def take(self, deal: Assignment) -> None:
        """Play a game, as soon as there is room."""
        self._meet((entry.message.header, entry.message.text) for entry in deal.before)
        self._left += 1
        self._portal.start_task_soon(self._play, deal)

    def _meet(self, texts: Iterable[tuple[str, str]]) -> None:
        """Teach engines the words that games say again."""
        told = tuple(texts)
        for model in (self._loaded.engine, *self._loaded.others.values()):
            teach_words(model, told)

    def report(self, seconds: float) -> WorkerReport:
        """Report what is over. If games are in progress, waits for the first to end, but no longer than `seconds`."""
        found, until = self._next(seconds), monotonic() + LINGER
        while found and self._left and not _notes(found) and (more := self._next(until - monotonic())):
            found += more
        done, notes = [each for each in found if isinstance(each, GameDone)], _notes(found)
        self._reported = max([self._reported, *(note.number for note in notes)])
        inside = self._limiter.inside
        ahead = max(self._at_once or FIRST, inside, 2 * len(done))
        wants = max(0, ahead + inside - self._left)
        steps = sum(each.steps for each in self._models.choreographers)
        return WorkerReport(tuple(done), wants, steps, self._limiter.most, notes)

    def confirm(self) -> None:
        """Release the tool calls that waited for their notes: all that was reported is on record."""
        self._portal.call(self._confirm)

    def _confirm(self) -> None:
        self._recorded = self._reported
        for number in [number for number in self._waiting if number <= self._recorded]:
            self._waiting.pop(number).set()

    def _note(self, game: int, event: Calling | Called | None, said: tuple[TranscriptEntry, ...], lines: bytes) -> None:
        """Report a tool call to the driver."""
        self._notes += 1
        self._over.put(ToolCallNote(self._notes, game, said, event, lines))

    async def _confirmed(self) -> None:
        """Wait until all notes are on record."""
        if self._notes > self._recorded:
            event = self._waiting.setdefault(self._notes, anyio.Event())
            await event.wait()

    def _next(self, seconds: float) -> list[GameDone | ToolCallNote]:
        """The next finished game or note, if one comes within `seconds`. Raises on an error that no game may cause: the
        worker is unusable then."""
        if not self._left or seconds <= 0:
            return []
        try:
            found = self._over.get(timeout=seconds)
        except Empty:
            return []
        if isinstance(found, BaseException):
            raise RuntimeError(f"{type(found).__name__}: {words(found)}") from found
        self._left -= isinstance(found, GameDone)
        return [found]

    async def _play(self, deal: Assignment) -> None:
        with anyio.CancelScope() as scope:
            self._playing.add(scope)
            try:
                self._over.put(await self._done(deal))
            except BaseException as error:
                self._over.put(error)
                raise
            finally:
                self._playing.remove(scope)

    async def _done(self, deal: Assignment) -> GameDone:
        """Play one game to its end, keeping its messages in memory."""
        heard = GameLog(self._work.heard, partial(self._note, deal.game))
        sink = RecordingSink(None, heard, self._confirmed)
        before, calls = {deal.game: deal.before}, {deal.game: deal.calls}
        request = RunRequest(
            self._scenario,
            self._work.config,
            find_agent=self._find,
            selection=GameSelection(
                (deal.game,), lambda game: deal.forced, before, calls=calls, begun={deal.game: deal.begun}
            ),
            on_failure=OnFailure(retries=self._work.retries),
        )
        run = Run(request, self._tasks(deal), self._loaded, sink)
        await run.join(self._models, self._limiter)
        failed, over = run.errors.get(deal.game), run.finished[deal.game]
        fault = None if failed is None else failed.fault
        return GameDone(over, heard.cast, encoded_lines(heard.lines), tuple(heard.events), fault)

    def _tasks(self, deal: Assignment) -> TaskSet | None:
        """The tasks of one game, under their numbers in the whole run."""
        if not deal.tasks:
            return None
        first = deal.game * self._scenario.draws()
        at: Any = lambda number: deal.tasks[number - first]  # noqa: E731
        return TaskSet("dealt", self._scenario.kind, None, "", at)

    def close(self) -> None:
        """Drop the games in progress."""
        self._portal.call(self._cancel)
        self._open.close()

    def _cancel(self) -> None:
        for scope in self._playing:
            scope.cancel()


def _notes(found: Iterable[GameDone | ToolCallNote]) -> tuple[ToolCallNote, ...]:
    return tuple(each for each in found if isinstance(each, ToolCallNote))
