"""`agentcho compare`: everything is checked first, then the model is loaded, then columns are played and compared.

Does not know: how games are played, what the figures mean.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import typer

from agentcho.cli.cluster import Cluster, players, remote_playing
from agentcho.cli.play import chosen
from agentcho.cli.signals import INTERRUPTED
from agentcho.cli.words import COLUMNS
from agentcho.config import RunConfig, again
from agentcho.display.compared import show
from agentcho.display.progress import progress
from agentcho.flow.markers import required_markers
from agentcho.games import runtime
from agentcho.games.discovery import from_anywhere
from agentcho.lab.collect import Interrupted, Playing
from agentcho.lab.compare.columns import Column, columns
from agentcho.lab.compare.compare import Comparing, Effort
from agentcho.lab.compare.files import write, write_json
from agentcho.progress import Tell
from agentcho.records import writer
from agentcho.records.files import check_file, check_folder, writing
from agentcho.records.writer import Writer
from agentcho.scenario import Scenario


class Asked(NamedTuple):
    """A comparison as the command line asks for it."""

    scenario: str
    modes: str
    repair: str | None
    adapter: str | None
    given: Mapping[str, str]
    config: RunConfig
    effort: Effort
    out: Path | None
    json: Path | None
    judge: str | None
    at_once: int | None
    on: Cluster | None = None


def compare_columns(asked: Asked) -> int:
    """Play, compare, show, write. Returns the exit code: 0, or 130 after Ctrl-C; games that are over are kept."""
    found = columns(asked.modes, asked.repair, asked.adapter)
    scenario = chosen(asked.scenario, asked.given)
    for column in found:
        column.config(asked.config)
    runtime.tasks_of(scenario, asked.config)
    _check_judge(asked.judge, scenario)
    _check_files(asked)
    with _folder(asked.out) as folder, progress("compare", sys.stderr) as told:
        try:
            with _playing(asked, scenario, _loading(asked.config, found), told.tell) as playing:
                work = Comparing(playing, found, folder, told.tell, _effort(asked, playing))
                work.claim()
                result = work.run(_command(asked), None if asked.judge is None else _judge(asked, told.tell))
        except (Interrupted, KeyboardInterrupt):
            told.clear()
            kept = f"; what was played is in {folder}" if asked.out else ""
            print(f"interrupted{kept}", file=sys.stderr)
            return INTERRUPTED
        told.clear()
        show(result, sys.stdout)
        if asked.out is not None:
            print(f"\nwritten: {', '.join(str(path) for path in write(result, folder))}")
        if asked.json is not None:
            write_json(result, asked.json)
    return 0


@contextmanager
def _playing(asked: Asked, scenario: Scenario, loading: RunConfig, tell: Tell) -> Iterator[Playing]:
    """How the games are played: on an engine of this process, or by the workers of a cluster."""
    if asked.on is None:
        yield Playing(scenario, asked.config, runtime.load_engine(loading, tell), asked.at_once)
        return
    with players(asked.on, from_anywhere(asked.scenario), loading, "encodings") as workers:
        yield remote_playing(workers, scenario, (asked.config, loading), asked.at_once, tell)


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder of the games; where none is given, a temporary one."""
    if out is not None:
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
        with Writer(out / writer.NAME):
            yield out
        return
    with tempfile.TemporaryDirectory(prefix="agentcho-") as folder:
        yield Path(folder)


def _check_files(asked: Asked) -> None:
    """`CannotWrite` or `RecordInUse`, before a model is loaded."""
    if asked.out is not None:
        check_folder(asked.out)
        writer.check(asked.out / writer.NAME)
    if asked.json is not None:
        check_file(asked.json)


def _check_judge(judge: str | None, scenario: Scenario) -> None:
    """A usage error for a model that cannot judge, or a scenario without texts to judge."""
    if judge is None:
        return
    if judge == "understudy":
        raise typer.BadParameter("the understudy is no judge; name a real model", param_hint="--judge")
    if type(scenario).judged is Scenario.judged:
        raise typer.BadParameter(f"{scenario.name} has no text that could be judged", param_hint="--judge")


def _loading(config: RunConfig, found: Sequence[Column]) -> RunConfig:
    """The options to load a model with: where any column refuses models with plain markers, loading has to."""
    claims = any(required_markers(column.config(config).reuse, "refuse") == "refuse" for column in found)
    return config.model_copy(update={"leakage": "enforce" if claims else "audit"})


def _judge(asked: Asked, tell: Tell) -> Any:
    """The model that judges, on the same device."""
    return runtime.load_engine(asked.config.model_copy(update={"model": asked.judge, "leakage": "audit"}), tell)


def _effort(asked: Asked, playing: Playing) -> Effort:
    """No fidelity and no timing on the fake engine, which computes no distributions."""
    real = hasattr(playing.engine, "logits") or (asked.on is not None and asked.config.model != "fake")
    return asked.effort if real else asked.effort._replace(fidelity=0, timed=0)


def _command(asked: Asked) -> str:
    """The command that finds it again."""
    words = ["agentcho", "compare", asked.scenario, "--modes", asked.modes, "-n", str(asked.config.games)]
    words += [] if asked.repair is None else ["--repair", asked.repair]
    words += [] if asked.adapter is None else ["--adapter", asked.adapter]
    return again(words, asked.config, COLUMNS.fields(()), asked.given)
