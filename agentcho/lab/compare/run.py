"""Runs a comparison from its options: checks everything first, then loads the model, then plays and compares the
columns. Independent of the command line.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from agentcho.config import RunConfig, again, option_names
from agentcho.errors import ConfigError
from agentcho.games.runs import library, runtime
from agentcho.games.runs.discovery import from_anywhere
from agentcho.games.runs.resume import Changed
from agentcho.integrations.ray.players import Cluster, players
from agentcho.lab.by_workers import remote_playing
from agentcho.lab.collect import Playing
from agentcho.lab.compare.columns import OF_COLUMNS, Column, columns
from agentcho.lab.compare.compare import Comparing, Effort
from agentcho.lab.compare.comparison import Comparison
from agentcho.lab.compare.files import draw, write, write_json
from agentcho.lab.compare.judge import JudgePort
from agentcho.protocol.call import EnginePort
from agentcho.protocol.progress import ProgressCallback
from agentcho.provenance.message_boundaries import required_markers
from agentcho.records import writer_lock
from agentcho.records.files import check_file, check_folder, write_errors
from agentcho.records.writer_lock import WriterLock
from agentcho.scenario import Scenario

PLOTTED = (
    "a plot of fidelity against cost needs both: give --fidelity-games and --timed-games above 0, and a model that is "
    "loaded, or leave out --plot"
)


class CompareOptions(NamedTuple):
    """The options of a comparison: `scenario` is a name, a path, or an object; `judge` a model's name, or an engine.
    `engine` is used instead of loading a model."""

    scenario: str | Scenario
    modes: str
    repair: str | None
    adapter: str | None
    given: Mapping[str, Any]
    config: RunConfig
    effort: Effort
    out: Path | None
    json: Path | None
    judge: str | JudgePort | None
    at_once: int | None
    on: Cluster | None = None
    engine: EnginePort | None = None
    reuse: str | None = None
    plot: Path | None = None
    changed: Changed = "refuse"


def compared(asked: CompareOptions, tell: ProgressCallback) -> tuple[Comparison, tuple[Path, ...]]:
    """Check everything, then load, play, compare and write. Returns the result and the files written in its folder, if
    it has one. `Interrupted`: Ctrl-C; finished games are kept."""
    found = columns(asked.modes, asked.repair, asked.adapter, asked.reuse)
    scenario = library.chosen(asked.scenario, asked.given) if isinstance(asked.scenario, str) else asked.scenario
    for column in found:
        column.config(asked.config)
    runtime.tasks_of(scenario, asked.config)
    _check_judge(asked.judge, scenario)
    _check_files(asked)
    if asked.plot is not None and asked.engine is None and asked.config.model == "fake":
        raise ConfigError(PLOTTED)
    with _folder(asked.out) as folder:
        with _playing(asked, scenario, _loading(asked.config, found), tell) as playing:
            playing = playing._replace(changed=asked.changed, find_agent=cache(library.agent))
            work = Comparing(playing=playing, columns=found, folder=folder, tell=tell, effort=_effort(asked, playing))
            work.claim()
            result = work.run(_command(asked, scenario), _judge(asked, tell))
        files = () if asked.out is None else write(result, folder)
    if asked.json is not None:
        write_json(result, asked.json)
    if asked.plot is not None:
        draw(result, asked.plot)
    return result, files


@contextmanager
def _playing(
    asked: CompareOptions, scenario: Scenario, loading: RunConfig, tell: ProgressCallback
) -> Iterator[Playing]:
    """How the games are played: on an engine of this process, or by the workers of a cluster."""
    if asked.on is None:
        yield Playing(scenario, asked.config, asked.engine or runtime.load_engine(loading, tell), asked.at_once)
        return
    if not isinstance(asked.scenario, str):
        raise ConfigError("workers load a scenario by its name or path; give that instead of a Scenario")
    with players(asked.on, from_anywhere(asked.scenario), loading, "encodings") as workers:
        yield remote_playing(
            workers=workers, scenario=scenario, configs=(asked.config, loading), at_once=asked.at_once, tell=tell
        )


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder of the games; a temporary one if none is given."""
    if out is not None:
        with write_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        with WriterLock(out / writer_lock.NAME):
            yield out
        return
    with tempfile.TemporaryDirectory(prefix="agentcho-") as folder:
        yield Path(folder)


def _check_files(asked: CompareOptions) -> None:
    """Raise `CannotWrite` or `RecordInUse` before a model is loaded."""
    if asked.out is not None:
        check_folder(asked.out)
        writer_lock.check(asked.out / writer_lock.NAME)
    for file in (asked.json, asked.plot):
        if file is not None:
            check_file(file)


def _check_judge(judge: str | JudgePort | None, scenario: Scenario) -> None:
    """`ConfigError`: a model that cannot judge, or a scenario without texts to judge."""
    if judge is None:
        return
    if judge == "understudy":
        raise ConfigError("the understudy cannot judge; name a real model", "judge")
    if type(scenario).judged is Scenario.judged:
        raise ConfigError(f"{scenario.name} has no text to judge", "judge")


def _loading(config: RunConfig, found: Sequence[Column]) -> RunConfig:
    """The options to load the model with: if any column refuses models with plain markers, loading does too."""
    claims = any(required_markers(column.config(config).policy, "refuse") == "refuse" for column in found)
    return config.model_copy(update={"leakage": "enforce" if claims else "audit"})


def _judge(asked: CompareOptions, tell: ProgressCallback) -> Any:
    """The judge model, on the same device; None: there is none."""
    if not isinstance(asked.judge, str):
        return asked.judge
    return runtime.load_engine(asked.config.model_copy(update={"model": asked.judge, "leakage": "audit"}), tell)


def _effort(asked: CompareOptions, playing: Playing) -> Effort:
    """The effort, without fidelity and timing on the fake engine, which computes no distributions. `ConfigError`: a
    plot of them is requested."""
    real = hasattr(playing.engine, "logits") or (asked.on is not None and asked.config.model != "fake")
    effort = asked.effort if real else asked.effort._replace(fidelity=0, timed=0)
    if asked.plot is not None and not (effort.fidelity and effort.timed):
        raise ConfigError(PLOTTED)
    return effort


def _command(asked: CompareOptions, scenario: Scenario) -> str:
    """The command that reproduces the result."""
    name = asked.scenario if isinstance(asked.scenario, str) else scenario.name
    words = ["agentcho", "compare", name, "--modes", asked.modes, "-n", str(asked.config.games)]
    words += [] if asked.reuse is None else ["--reuse", asked.reuse]
    words += [] if asked.repair is None else ["--repair", asked.repair]
    words += [] if asked.adapter is None else ["--adapter", asked.adapter]
    if asked.judge is not None:
        words += ["--judge", asked.judge if isinstance(asked.judge, str) else "..."]
    usual = Effort()
    words += [] if asked.effort.fidelity == usual.fidelity else ["--fidelity-games", str(asked.effort.fidelity)]
    words += [] if asked.effort.timed == usual.timed else ["--timed-games", str(asked.effort.timed)]
    return again(words, asked.config, option_names(without=OF_COLUMNS), asked.given)
