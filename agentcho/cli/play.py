"""`agentcho run`: everything is checked first, then the model is loaded, then the games are played and shown.

Does not know: what a scenario does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import typer
from pydantic import SecretBytes, SecretStr

from agentcho.cli.cluster import Cluster, players
from agentcho.cli.leaks import leaks
from agentcho.cli.options import configured, run_config
from agentcho.cli.outputs import silence
from agentcho.cli.people import seated
from agentcho.cli.signals import INTERRUPTED
from agentcho.cli.spans import Spans, Traced, traced
from agentcho.cluster import runs
from agentcho.config import RunConfig
from agentcho.display import Kind, Screen, heading, screen
from agentcho.display.progress import Progress, progress
from agentcho.display.safe import visible
from agentcho.display.withheld import withheld
from agentcho.errors import ConfigError, GamesFailed, RecordError
from agentcho.events import Event, Sink
from agentcho.games import library
from agentcho.games.discovery import from_anywhere, path_of
from agentcho.games.human import People
from agentcho.games.resume import Changed, mismatch
from agentcho.games.run import OnFailure
from agentcho.games.runtime import RunResult, play, resume
from agentcho.records.record import SavedRun, find
from agentcho.scenario import Scenario

KEPT = "what was said until then is recorded, and `agentcho run --resume last` goes on"
LATER = "not all games are over, and people play them: what leaked is told at the end of `agentcho run --resume last`"


class Asked(NamedTuple):
    """The arguments of the command: `how` are the run options that were typed, `given` the scenario's own. With
    `resume` all others are those of that run, and `scenario` may be None."""

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


def play_scenario(asked: Asked) -> int:
    """Play a scenario, or go on with a run. Returns the exit code: 0, or 130 after Ctrl-C. `GamesFailed`: an error
    ended games."""
    if asked.resume is None:
        config = run_config(**asked.how)
        scenario = _scenario(asked.scenario, asked.given)
        named = from_anywhere(asked.scenario or "")
        here = partial(play, scenario, config)
        there = partial(runs.play, scenario=scenario, config=config)
        with _where(asked, named, config, here, there) as playing:
            played = _shown(partial(playing, out=asked.out, asked=named), scenario, config, asked)
    else:
        saved = find(asked.resume, asked.out)
        config = run_config(**{**saved.info.config.model_dump(), **asked.how})
        named = asked.scenario or _named(saved)
        scenario = _scenario(named, {**saved.info.options, **asked.given})
        _check_secrets(scenario, asked.given)
        here = partial(resume, saved, scenario, config)
        there = partial(runs.resume, saved=saved, scenario=scenario, config=config)
        with _where(asked, named, config, here, there) as playing:
            going_on = partial(playing, changed=asked.changed, redo=asked.redo, skip=asked.skip)
            played = _shown(going_on, scenario, config, asked, saved)
    kept_back = config.people and (played.interrupted or played.errors)
    if played.record is not None and asked.display != "none":
        _last_line(LATER if kept_back else leaks(played.record), played.record)
    if played.interrupted:
        return INTERRUPTED
    if kept_back:
        raise GamesFailed(wordless(played), len(config.numbers), played.record)
    played.check(len(config.numbers))
    return 0


@contextmanager
def _where(
    asked: Asked, scenario: str, config: RunConfig, here: Callable[..., RunResult], there: Callable[..., RunResult]
) -> Iterator[Callable[..., RunResult]]:
    """What plays: `here` in this process, or `there` with the workers of a cluster, which are gone at the end."""
    if asked.on is None:
        yield here
        return
    if config.people:
        raise ConfigError(f"{config.people[0]} is played by a person, who sits here and at no worker; leave --on out")
    with players(asked.on, scenario, config, "games" if asked.display == "none" else "messages") as workers:
        yield partial(there, workers)


def _unread(kept: str) -> RecordError:
    """Whoever read standard output has closed it; `kept` says what there is all the same."""
    return RecordError(f"whoever read the output has gone; {kept}", code=1)


def _last_line(line: str, record: Path) -> None:
    try:
        print(line, flush=True)
    except BrokenPipeError:
        silence(sys.stdout)
        raise _unread(f"all games are over: {record}") from None


def _scenario(name: str | None, given: Mapping[str, Any]) -> Scenario:
    if name is None:
        raise typer.BadParameter("give a scenario, or --resume", param_hint="SCENARIO")
    return chosen(name, given)


def chosen(name: str, given: Mapping[str, Any]) -> Scenario:
    """The scenario of that name with its options, once all agents that it casts by name are found."""
    scenario = configured(library.scenario(name), given)
    for agent in library.casts(scenario):
        library.agent(agent)
    return scenario


def _check_secrets(scenario: Scenario, given: Mapping[str, Any]) -> None:
    """A usage error for a secret that no record holds, and that was not given again."""
    for name, value in scenario.options:
        if isinstance(value, SecretStr | SecretBytes) and name not in given:
            raise typer.BadParameter(f"{name} is a secret, which is not recorded: give it again", param_hint="--set")


def _named(saved: SavedRun) -> str:
    """What a recorded run played: a name, or a file that is still there."""
    asked = saved.info.asked or saved.info.scenario
    if (file := path_of(asked)) is not None and not file.is_file():
        raise mismatch(saved.info.id, [f"the file {asked}, which is not there any more,"])
    return asked


def _shown(
    playing: Callable[..., RunResult],
    scenario: Scenario,
    config: RunConfig,
    asked: Asked,
    saved: SavedRun | None = None,
) -> RunResult:
    with telling("run", asked.display) as told, traced(asked.telemetry, scenario.name, config, told=True) as spans:
        people = seated(config, asked.display, told.clear)
        playing = partial(playing, at_once=asked.at_once, on_failure=asked.on_failure, tell=told.tell)
        played = play_shown(scenario, config, asked.display, playing, saved, told, people, spans)
        spans.audited(played.record)
        return played


def telling(command: str, display: Kind | None) -> Progress:
    """The progress of a command that plays: no bar where plain lines go to the same terminal."""
    return progress(command, sys.stderr, bars=display != "plain" or not sys.stdout.isatty())


def play_shown(
    scenario: Scenario,
    config: RunConfig,
    display: Kind | None,
    playing: Callable[..., RunResult],
    saved: SavedRun | None = None,
    told: Progress | None = None,
    people: People = MappingProxyType({}),
    spans: Traced | None = None,
) -> RunResult:
    """Play with a screen that shows the events, those of a `saved` run first. `playing` takes the `sink`; `told` shows
    how many games are over. Where `people` play, nothing else is shown before the end."""
    kept, told, title = "nothing was begun", told or Progress(), heading(scenario.name, config)
    try:
        if people:
            showing, playing = withheld(display, title, sys.stdout), partial(playing, people=people)
        else:
            showing = screen(display, title, len(config.numbers), sys.stdout)
        with showing as shown:
            kept = KEPT
            if saved is not None:
                shown.remember(saved)
            heard = _both(shown, told, len(config.numbers))
            played = playing(sink=heard if spans is None else spans.sink(heard))
            told.clear()
        kept = f"all games are over: {played.record}"
        shown.close(played)
    except BrokenPipeError:
        silence(sys.stdout)
        raise _unread(kept) from None
    return played


def wordless(played: RunResult) -> dict[int, str]:
    """How games ended that an error ended, in words that quote nobody: who plays them may see these, and go on."""
    return {game.game: str(game.ended).removeprefix("error: ") for game in played.games if game.failed}


def _both(shown: Screen, told: Progress, games: int) -> Sink:
    """A sink for the screen and for the progress, which shows nothing where the screen is live."""

    def hear(event: Event) -> None:
        if shown.moves:
            told.clear()
        shown.hear(event)
        if not shown.moves:
            told.tell("games", len(shown.games), games)

    return hear


def play_recorded(
    target: str, scenario: Scenario, config: RunConfig, engine: Any, out: Path, display: Kind | None, told: Progress
) -> SavedRun | None:
    """Play and record a scenario, and name the games that an error ended. None: it was interrupted."""
    named = from_anywhere(target)
    playing = partial(play, scenario, config, engine=engine, out=out, asked=named, tell=told.tell)
    played = play_shown(scenario, config, display, playing, told=told)
    if played.interrupted:
        return None
    for game, failed in played.errors.items():
        print(f"game {game} ended by an error: {visible(' '.join(str(failed.fault).split()))}", file=sys.stderr)
    assert played.record is not None
    return SavedRun(played.record)
