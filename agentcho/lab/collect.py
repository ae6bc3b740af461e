"""Plays the games that a measurement needs, each once: games that an earlier, interrupted command finished are read
from its records. Must not depend on comparisons, their columns or training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from agentcho.config import RunConfig
from agentcho.errors import ConfigError, ResumeMismatch
from agentcho.events import Sink
from agentcho.games.play.turn import Forced
from agentcho.games.runs import library
from agentcho.games.runs.request import FindAgent, GameSelection, RunRequest
from agentcho.games.runs.resume import Changed, begun_before, differences, source_differences
from agentcho.games.runs.runtime import RunResult, play, tasks_of
from agentcho.protocol.call import EnginePort
from agentcho.records.record import GameOver, SavedRun, runs
from agentcho.records.trace import Workflow
from agentcho.records.transcript import TranscriptEntry
from agentcho.scenario import Scenario, json_options


class Interrupted(Exception):
    """Ctrl-C arrived while games were played. Finished games stay on disk."""


class Adaptable(Protocol):
    """What adapters need from an engine."""

    def adapted(self, adapter: str | None) -> EnginePort: ...


@runtime_checkable
class Closable(Protocol):
    """An engine that has memory of its own. One that stands for workers has none."""

    def close(self) -> None: ...


@contextmanager
def adapted(engine: EnginePort, adapter: str | None) -> Iterator[EnginePort]:
    """The engine with an adapter, whose store fills as games are played and is freed at the end. Without an adapter:
    the engine itself, which stays open."""
    own = engine if adapter is None else cast(Adaptable, engine).adapted(adapter)
    try:
        yield own
    finally:
        if own is not engine and isinstance(own, Closable):
            own.close()


class Playing(NamedTuple):
    """How games are played: everything but their numbers. `play_on` plays them. If it does so in another process,
    `here` returns an engine of this process to measure on. `changed`: what to do about games that were played with
    other code of the scenario. `find_agent`: returns the agent class of a name."""

    scenario: Scenario
    config: RunConfig
    engine: EnginePort
    at_once: int | None = None
    play_on: Callable[[RunRequest], RunResult] = play
    here: Callable[[], EnginePort] | None = None
    changed: Changed = "refuse"
    find_agent: FindAgent = library.agent

    @property
    def asked(self) -> dict[str, Any]:
        """All inputs that determine the games, as JSON. `TaskError`: the tasks cannot be read."""
        scenario, tasks = self.scenario, tasks_of(self.scenario, self.config)
        return {
            "scenario": scenario.name,
            "options": json_options(scenario),
            "tasks": self.config.tasks or scenario.tasks,
            "digest": None if tasks is None else tasks.digest,
            "model": self.engine.fingerprint,
            **self.config.model_dump(include={"seed", "temperature", "top_p", "max_tokens"}),
        }

    def play(self, left: Iterable[int], forced: Mapping[int, Forced], sink: Sink, out: Path | None = None) -> RunResult:
        """Play the games `left`, each with the texts that `forced` has for it. Records go to `out`, if given; a
        game that has already called tools there continues where it stopped."""
        if self.config.models:
            raise ConfigError("comparisons and training play all games on one model; leave models out")
        games, saved = tuple(left), runs(out) if out is not None and out.is_dir() else ()
        before, calls = begun_before(saved, games)
        selection = GameSelection(games, lambda number: forced.get(number, {}), before, calls=calls)
        return self.play_on(
            RunRequest(
                self.scenario,
                self.config,
                engine=self.engine,
                sink=sink,
                out=out,
                at_once=self.at_once,
                find_agent=self.find_agent,
                selection=selection,
            )
        )


def check_same(where: Path, what: str, earlier: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raise `ResumeMismatch` if a folder or file was begun with other values. `what` names its content."""
    if changed := sorted(name for name in {*earlier, *asked} if earlier.get(name) != asked.get(name)):
        raise ResumeMismatch.holds(where, what, changed)


def check_played(playing: Playing, folder: Path) -> None:
    """Raise `ResumeMismatch` if a record in a folder was played with other options, other tasks, or other code of the
    scenario than games are played with now."""
    scenario, config = playing.scenario, playing.config
    options, used = json_options(scenario), library.sources(scenario, playing.find_agent)
    tasks = tasks_of(scenario, config)
    for run in runs(folder) if folder.is_dir() else ():
        then = run.info.config  # what an adapter holds is known by its folder of records, and its path may differ
        now = config.model_copy(update={"games": then.games, "adapter": then.adapter})
        digest = None if tasks is None else tasks.digest
        found = differences(run.info, scenario=scenario.name, options=options, config=now, tasks=digest)
        found += source_differences(run.info.sources, used) if playing.changed == "refuse" else []
        if found:
            raise ResumeMismatch.holds(folder, "games that were played in another way", found)


class Games(NamedTuple):
    """The finished games in a folder of records, by number: their outcomes, transcripts and traces."""

    finished: dict[int, GameOver]
    said: dict[int, list[TranscriptEntry]]
    workflows: dict[int, Workflow]


def over(folder: Path, games: int) -> frozenset[int]:
    """The games from 0 to `games` - 1 that are over, by the records in a folder. A game that failed is not over."""
    numbers = {number for run in runs(folder) for number, game in run.finished().items() if not game.failed}
    return frozenset(numbers.intersection(range(games)))


def collected(folder: Path) -> Games:
    """All finished games of all records in a folder. Games that failed are left out, because they are played again."""
    games = Games({}, {}, {})
    for run in runs(folder) if folder.is_dir() else ():
        _collect(run, games)
    return games


def _collect(run: SavedRun, games: Games) -> None:
    whole = {number: over for number, over in run.finished().items() if not over.failed}
    said, exported = run.games(), {int(w.meta["game"]): w for w in run.export(whole)}
    for number, over in whole.items():
        games.finished[number], games.said[number] = over, said.get(number, [])
        games.workflows[number] = exported[number]


def completed(playing: Playing, folder: Path, forced: Mapping[int, Forced], sink: Sink) -> Games:
    """Play those games that no record in the folder has, and return all of them. `ResumeMismatch`: the folder has games
    of other options or of other code. `GamesFailed`: some failed; the others are over. `Interrupted`: Ctrl-C."""
    check_played(playing, folder)
    there = collected(folder).finished
    left = [number for number in range(playing.config.games) if number not in there]
    if left:
        played = playing.play(left, forced, sink, folder)
        if played.interrupted:
            raise Interrupted
        played.check(len(left))
    return collected(folder)
