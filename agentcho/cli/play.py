"""`agentcho run`: check everything, then load the model, then play the games and show them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from agentcho.cli.error_text import error_text
from agentcho.cli.leak_summary import leak_summary
from agentcho.cli.options import run_config
from agentcho.cli.signals import INTERRUPTED
from agentcho.config import RunConfig
from agentcho.display import Kind
from agentcho.display.people.seated import seated
from agentcho.display.playing import play_shown, silence, unread
from agentcho.display.progress import Progress, progress
from agentcho.display.safe import inline
from agentcho.display.totals import error_for_people
from agentcho.errors import ConfigError, GamesFailed
from agentcho.games.runs import library
from agentcho.games.runs.discovery import from_anywhere, path_of
from agentcho.games.runs.request import OnFailure, RunRequest
from agentcho.games.runs.resume import Changed, how_to_continue, mismatch, scenario_of
from agentcho.games.runs.runtime import RunResult, play
from agentcho.integrations.opentelemetry.traced import Spans, traced
from agentcho.integrations.ray import runs
from agentcho.integrations.ray.players import Cluster, players
from agentcho.integrations.ray.work import Heard
from agentcho.records.record import SavedRun, find
from agentcho.scenario import Scenario

LATER = "people play in games that are not over, so leaks are reported only when they have been resumed to their end"
Play = Callable[[RunRequest], RunResult]


@dataclass(frozen=True)
class RunArguments:
    """The arguments of the command. `how` are the run options that were typed, `given` the scenario's own.

    With `resume`, those that are not given are taken from that run, and `scenario` may be None.
    """

    scenario: str | None
    how: Mapping[str, Any]
    given: Mapping[str, str]
    display: Kind | None
    out: Path
    at_once: int | None
    on_failure: OnFailure
    resume: str | None = None
    changed: Changed = "refuse"
    redo: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    on: Cluster | None = None
    telemetry: Spans | None = None

    def request(self) -> RunRequest:
        """Return the request for a run."""
        how: dict[str, Any] = {"at_once": self.at_once, "on_failure": self.on_failure}
        if self.resume is None:
            if self.scenario is None:
                raise typer.BadParameter("give a scenario, or --resume", param_hint="SCENARIO")
            for name, typed in {"redo": self.redo, "skip": self.skip, "changed": self.changed != "refuse"}.items():
                if typed:
                    raise typer.BadParameter(
                        "has no effect without --resume; give --resume too, or leave it out", param_hint=f"--{name}"
                    )
            config, scenario = run_config(**self.how), library.chosen(self.scenario, self.given)
            return RunRequest(scenario, config, out=self.out, named=from_anywhere(self.scenario), **how)
        saved = find(self.resume, self.out)
        config = run_config(**{**saved.info.config.renamed(), **self.how})
        named = self.scenario or _named(saved)
        scenario = library.chosen(named, self.given, saved.info.options)
        how |= {"named": named, "changed": self.changed, "redo": self.redo, "skip": self.skip}
        return RunRequest.resuming(saved, scenario, config, **how)


def play_scenario(asked: RunArguments) -> int:
    """Play a scenario, or resume a run, and return the exit code: 0, or 130 after Ctrl-C.

    Raises `GamesFailed` if errors ended games.
    """
    request = asked.request()
    try:
        with _where(asked, request) as playing:
            played = _shown(request, playing, asked)
    except KeyboardInterrupt as interrupt:
        for note in getattr(interrupt, "__notes__", ()):
            print(note, file=sys.stderr)
        raise
    games, kept_back = len(request.config.numbers), request.config.people and (played.interrupted or played.errors)
    if played.record is not None and asked.display != "none":
        _last_line(LATER if kept_back else leak_summary(played.record), played.record)
        if played.interrupted or kept_back:
            _last_line("\n".join(map(inline, how_to_continue(SavedRun(played.record)))), played.record)
    if played.interrupted:
        return INTERRUPTED
    if kept_back:
        raise GamesFailed(failures_without_text(played), games, played.record)
    played.check(games)
    return 0


@contextmanager
def _where(asked: RunArguments, request: RunRequest) -> Iterator[Play]:
    """A context with the function that plays: in this process, or on workers of a cluster, which end with it."""
    if asked.on is None:
        yield play
        return
    config = request.config
    if config.people:
        raise ConfigError(
            f"{config.people[0]} is played by a person at this terminal, which workers cannot reach; leave --on out"
        )
    heard: Heard = "games" if asked.display == "none" else "messages"
    with players(asked.on, request.named or "", config, heard) as workers:
        yield partial(runs.play, workers)


def _last_line(line: str, record: Path) -> None:
    try:
        print(line, flush=True)
    except BrokenPipeError:
        silence(sys.stdout)
        raise unread(f"all games are over: {record}") from None


def _named(saved: SavedRun) -> str:
    """Return the scenario of a recorded run: a name, or a file that still exists."""
    asked = scenario_of(saved)
    if (file := path_of(asked)) is not None and not file.is_file():
        raise mismatch(saved.info.id, [f"the file {asked}, which no longer exists,"])
    return asked


def _shown(request: RunRequest, playing: Play, asked: RunArguments) -> RunResult:
    name, config = request.scenario.name, request.config
    with progress_of("run", asked.display) as told, traced(asked.telemetry, name, config, told=True) as spans:
        request = replace(request, tell=told.tell, people=seated(config, asked.display, told.clear))
        played = play_shown(request, playing, asked.display, told, spans.sink)
        spans.audited(played.record)
        return played


def progress_of(command: str, display: Kind | None) -> Progress:
    """Return the progress display of a command that plays, without a bar if plain lines go to the same terminal."""
    return progress(command, sys.stderr, bars=display != "plain" or not sys.stdout.isatty())


def failures_without_text(played: RunResult) -> dict[int, str]:
    """Return the errors that ended games, without texts of messages, because people who play may resume them."""
    return {game.game: error_for_people(game) for game in played.games if game.failed}


def play_recorded(
    target: str, scenario: Scenario, config: RunConfig, engine: Any, out: Path, display: Kind | None, told: Progress
) -> SavedRun | None:
    """Play and record a scenario, and print the games that an error ended. Returns None if it was interrupted."""
    request = RunRequest(scenario, config, engine=engine, out=out, named=from_anywhere(target), tell=told.tell)
    played = play_shown(request, play, display, told)
    if played.interrupted:
        return None
    try:
        played.check(len(request.config.numbers))
    except GamesFailed as error:
        print(error_text(error), file=sys.stderr)
    assert played.record is not None
    return SavedRun(played.record)
