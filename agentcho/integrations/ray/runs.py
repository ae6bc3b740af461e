"""Plays and resumes runs on workers: the counterpart of `games.runs.runtime` for several machines.

Only this process writes the record; the lines of a game are written when it is over. Independent of Ray.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, cast

from pydantic import BaseModel, Secret, SecretBytes, SecretStr
from pydantic_core import to_jsonable_python

from agentcho.config import RunConfig
from agentcho.errors import WorkersLost
from agentcho.events import Calling, GameOver
from agentcho.games.play.game_faults import GameFault, told
from agentcho.games.play.journal import BegunCalls
from agentcho.games.play.turn import Forced
from agentcho.games.runs import library
from agentcho.games.runs.recording import write
from agentcho.games.runs.request import GameSelection, Resumption, RunRequest
from agentcho.games.runs.resume import (
    check_asked,
    check_engine,
    loading_config,
    recorded_entries,
    settled_calls,
    unfinished_games,
)
from agentcho.games.runs.run import FailedGame, draw_tasks
from agentcho.games.runs.runtime import RunResult, tasks_of
from agentcho.integrations.ray.driver import Driver, rebuilt
from agentcho.integrations.ray.packaging import all_models, unpacked
from agentcho.integrations.ray.work import (
    Assignment,
    GameDone,
    Heard,
    ToolCallNote,
    WorkerReady,
    WorkerRefused,
    WorkSpec,
)
from agentcho.records import writer_lock
from agentcho.records.files import check_folder
from agentcho.records.record import RunRecord, SavedRun
from agentcho.records.transcript import TranscriptEntry
from agentcho.scenario import Scenario, recorded_options
from agentcho.tasks import TaskSet

LOG = logging.getLogger("agentcho.run")
Opens = Callable[[WorkerReady], RunRecord | None]


@dataclass(frozen=True)
class Players:
    """The players of a run: a driver of workers, and the name or file by which they find the scenario. `heard`: what is
    sent to listeners of a run. `met`: see `WorkSpec`."""

    driver: Driver
    scenario: str
    heard: Heard = "encodings"
    met: dict[tuple[str, str], None] = field(default_factory=dict)


def play(players: Players, request: RunRequest) -> RunResult:
    """Play the games of a run on workers; see `games.runs.runtime.play`. The sink gets the events of a game when it is
    over. Raises as `Driver.play`."""
    if request.resume is not None:
        return _go_on(players, request, request.resume)
    scenario = request.scenario
    config = request.config
    out = request.out
    tasks, numbers = tasks_of(scenario, config), request.selection.numbers
    if out is not None:
        check_folder(out)

    def opened(begun: WorkerReady) -> RunRecord | None:
        if out is None:
            return None
        return RunRecord.create(
            out,
            scenario.name,
            recorded_options(scenario),
            config,
            begun.engine,
            None if tasks is None else tasks.digest,
            request.at_once,
            request.named,
            games.sources,
            begun.others,
        )

    games = Games(request, tasks, opened)
    return _played(players, games, config.numbers if numbers is None else numbers)


def _go_on(players: Players, request: RunRequest, resumption: Resumption) -> RunResult:
    """Play the games that a recorded run lacks."""
    saved = SavedRun(resumption.saved.path)
    scenario = request.scenario
    config = request.config
    used, tasks = library.sources(scenario), tasks_of(scenario, config)
    options, digest = recorded_options(scenario), None if tasks is None else tasks.digest
    check_asked(saved, scenario.name, options, config, digest, used, resumption.changed)
    writer_lock.check(saved.path / writer_lock.NAME)
    check_folder(saved.path)
    before = recorded_entries(saved)
    calls = settled_calls(saved, before, resumption.redo, resumption.skip)
    numbers = unfinished_games(saved)
    going_on = replace(
        request,
        config=loading_config(saved, config),
        selection=GameSelection(numbers, before=before, calls=calls, begun=saved.begun()),
        at_once=request.at_once or saved.info.at_once,
    )

    def opened(begun: WorkerReady) -> RunRecord:
        check_engine(saved, *begun)
        return RunRecord.go_on(saved, used)

    if not numbers:
        return RunResult((), 0, False, {}, saved.path)
    return _played(players, Games(going_on, tasks, opened), numbers)


def _played(players: Players, games: Games, numbers: Sequence[int]) -> RunResult:
    request, driver = games.request, players.driver
    scenario, config = request.scenario, request.config
    work = work_of(players, request, games.heard)
    LOG.info("%s begins on workers: %d games, %s, %s", scenario.name, len(numbers), config.mode, config.leakage)
    began = perf_counter()
    with games:
        try:
            driver.play(work, numbers, games)
        except KeyboardInterrupt:
            games.interrupted = True
        record = games.close(driver.most)
    over = tuple(games.finished[game] for game in sorted(games.finished))
    LOG.info("%s: %d games over, %d of them failed", scenario.name, len(over), len(games.errors))
    return RunResult(over, driver.steps, games.interrupted, games.errors, record, perf_counter() - began)


def work_of(players: Players, request: RunRequest, heard: bool = True) -> WorkSpec:
    """The work for workers on the games of a run. `heard`: somebody listens to more than the ends of games."""
    return WorkSpec(
        scenario=players.scenario,
        options=plain_options(request.scenario),
        config=unpacked(request.config),
        sources=tuple(library.sources(request.scenario).values()),
        at_once=request.at_once,
        retries=request.on_failure.retries,
        heard=players.heard if heard else "games",
        met=tuple(players.met),
    )


def named(begun: WorkerReady, config: RunConfig) -> WorkerReady:
    """What a worker has loaded, with the models under the names that they were given here."""
    pairs = zip(all_models(unpacked(config)), all_models(config), strict=True)
    names = {whole.model: given.model for whole, given in pairs}

    def of(engine: Mapping[str, str]) -> dict[str, str]:
        return dict(engine) | {"model": names.get(engine.get("model", ""), engine.get("model", ""))}

    return WorkerReady(of(begun.engine), {name: of(engine) for name, engine in begun.others.items()})


class Games:
    """The games of one run, as its driver deals them and takes them in. A context manager, which closes the record that
    `opens` opens when the first worker is ready."""

    def __init__(self, request: RunRequest, tasks: TaskSet | None, opens: Opens) -> None:
        self.request = request
        self._tasks = tasks
        self._opens = opens
        self.sources = library.sources(request.scenario)
        self._record: RunRecord | None = None
        self._noted, self._calls = dict[int, list[TranscriptEntry]](), dict(request.selection.calls)
        self._stack = ExitStack()
        self.heard = request.sink is not None
        self.finished: dict[int, GameOver] = {}
        self.errors: dict[int, FailedGame] = {}
        self.interrupted = False

    def open(self, begun: WorkerReady) -> None:
        """Open the record, with the models under the names that they were given here."""
        if self._record is None and (record := self._opens(named(begun, self.request.config))) is not None:
            self._record = self._stack.enter_context(record)

    def deal(self, game: int) -> Assignment:
        """A game with its tasks, the words that are forced, and the messages that it has already said."""
        tasks = () if self._tasks is None else draw_tasks(self._tasks, game, self.request.scenario.draws())
        selected, calls = self.request.selection, self._calls.get(game, BegunCalls())
        before = *selected.before.get(game, ()), *self._noted.get(game, ())
        forced, begun = _forced(selected.forced(game)), selected.begun.get(game, 0)
        return Assignment(game, tasks, forced=forced, before=before, calls=calls, begun=begun)

    def note(self, note: ToolCallNote) -> None:
        """Record a tool call with the messages before it, and keep them. If its worker or this process dies, the game
        goes on from there, and only idempotent calls may be made twice."""
        game = note.game
        self._noted.setdefault(game, []).extend(note.said)
        if isinstance(note.event, Calling) and not note.event.idempotent:
            self._calls[game] = self._calls.get(game, BegunCalls()).with_begun(note.event.id)
        if self._record is not None:
            self._record.wrote(note.lines)
            if note.event is not None:
                write(self._record, note.event)

    def over(self, done: GameDone) -> bool:
        """Write the lines of a game, and send its events to the sink."""
        game = done.over.game
        self._noted.pop(game, None)
        if self._record is not None:
            self._record.played(done.cast, done.lines, done.over)
        self.finished[game] = done.over
        if self.request.sink is not None:
            for event in (*done.events, done.over):
                self.request.sink(event)
        if done.fault is not None:
            self.errors[game] = FailedGame(rebuilt(WorkerRefused(done.fault.kind, done.fault.what, 1)), done.fault)
        return done.fault is None or not self.request.on_failure.fail_fast

    def lost(self, game: int, why: str) -> bool:
        """Record that a game was given up."""
        error = WorkersLost(f"its workers died more often than is allowed; the last one: {why}")
        fault = GameFault("WorkersLost", str(error), None, "")
        ended = GameOver(game, None, {}, told(error, fault), 0.0, fault.error, fault.traceback, where=fault.where)
        return self.over(GameDone(ended, fault=fault))

    def close(self, most: int) -> Path | None:
        """Write how the run ended. Returns the folder of the record, if there is one."""
        if self._record is None:
            return None
        self._record.most = max(most, self._record.most or 0) or None
        self._record.close("interrupted" if self.interrupted else "failed" if self.errors else "done")
        return self._record.path

    def __enter__(self) -> Games:
        self._stack.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)


def _forced(words: Forced) -> dict[str, tuple[int, ...]]:
    return {id: words[id] for id in words}


def plain_options(scenario: Scenario) -> dict[str, Any]:
    """The options of a scenario as JSON values, with secrets in plain text, because workers may not know the class of a
    value. Without computed fields, which cannot be given."""
    options = scenario.options
    return cast(dict[str, Any], _plain(options, options.model_dump(mode="json", by_alias=True, round_trip=True)))


def _plain(value: Any, shown: Any) -> Any:
    """The JSON form `shown` of a value, with its secrets in plain text."""
    if isinstance(value, SecretStr | SecretBytes):
        return value.get_secret_value()
    if isinstance(value, Secret):
        return to_jsonable_python(value.get_secret_value())
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, Mapping) and isinstance(shown, dict) and len(value) == len(shown):
        return shown | {name: _plain(each, shown[name]) for each, name in zip(value.values(), shown, strict=False)}
    if isinstance(value, list | tuple) and isinstance(shown, list) and len(value) == len(shown):
        return [_plain(each, one) for each, one in zip(value, shown, strict=True)]
    return shown
