"""Runs `agentcho trace`: checks everything first, then loads the model, then plays games into a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from agentcho.audit.wording import many
from agentcho.cli.signals import INTERRUPTED
from agentcho.config import RunConfig
from agentcho.display.progress import progress
from agentcho.display.safe import inline
from agentcho.games.runs import library, runtime
from agentcho.games.runs.discovery import from_anywhere
from agentcho.games.runs.resume import Changed
from agentcho.integrations.ray.players import Cluster, players
from agentcho.lab.by_workers import remote_playing
from agentcho.protocol.progress import ProgressCallback
from agentcho.records.files import check_file, write_errors
from agentcho.records.trace import read_traces
from agentcho.records.writer_lock import WriterLock, beside
from agentcho.scenario import Scenario

if TYPE_CHECKING:
    from agentcho.lab.collect import Playing


class TraceOptions(NamedTuple):
    """The arguments of the command: `games` traces, beginning with number `first`."""

    scenario: str
    given: Mapping[str, str]
    config: RunConfig
    first: int
    games: int
    out: Path
    at_once: int
    final_of: Path | None
    on: Cluster | None = None
    changed: Changed = "refuse"


def trace(asked: TraceOptions) -> int:
    """Play, write, and report. Returns the exit code: 0, or 130 after Ctrl-C; finished games are kept."""
    scenario = library.chosen(asked.scenario, asked.given)
    numbers = range(asked.first, asked.first + asked.games)
    config = asked.config.model_copy(update={"games": numbers.stop})
    runtime.tasks_of(scenario, config)
    finals = None if asked.final_of is None else read_traces(asked.final_of)
    check_file(asked.out)
    with write_errors(asked.out):
        asked.out.parent.mkdir(parents=True, exist_ok=True)
    with WriterLock(beside(asked.out), asked.out), progress("trace", sys.stderr) as told:
        from agentcho.lab.tune.sampling import sample

        with _playing(asked, scenario, config, told.tell) as playing:
            playing = playing._replace(changed=asked.changed, find_agent=cache(library.agent))
            found = sample(playing=playing, numbers=numbers, file=asked.out, tell=told.tell, finals=finals)
    left_out = f"; {found.without} ended without an outcome and are left out" if found.without else ""
    print(inline(f"{asked.out} has {many(found.games, 'game')} of {scenario.name}{left_out}"))
    if found.interrupted:
        print("interrupted; to continue, repeat the command", file=sys.stderr)
        return INTERRUPTED
    return 0


@contextmanager
def _playing(asked: TraceOptions, scenario: Scenario, config: RunConfig, tell: ProgressCallback) -> Iterator[Playing]:
    """How the games are played: on an engine of this process, or by the workers of a cluster."""
    from agentcho.lab.collect import Playing

    if asked.on is None:
        yield Playing(scenario, config, runtime.load_engine(config, tell), asked.at_once)
        return
    if asked.final_of is not None:
        raise typer.BadParameter("--final-of samples nothing; leave --on out", param_hint="--final-of")
    with players(asked.on, from_anywhere(asked.scenario), config, "encodings") as workers:
        yield remote_playing(
            workers=workers, scenario=scenario, configs=(config, config), at_once=asked.at_once, tell=tell
        )
