"""Runs `agentcho prove`: finds the workflows, plays them if they are a scenario, swaps secrets, and shows whose digests
changed.

Exit codes: 0 it holds, 1 something differs under enforce, or a free schedule reveals something, 2 usage, 3 nothing
could be shown.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from agentcho.cli.audit import check_local, nature_of
from agentcho.cli.outputs import STDOUT, Outputs
from agentcho.cli.play import play_recorded
from agentcho.cli.signals import INTERRUPTED
from agentcho.config import RunConfig
from agentcho.display import Kind
from agentcho.display.progress import Progress, progress
from agentcho.errors import AgentchoError, AudienceError
from agentcho.games.runs import library, runtime
from agentcho.lab.display.prove import show
from agentcho.records.record import SavedRun, find
from agentcho.records.trace import Workflow, read_traces
from agentcho.scenario import Scenario, given_options

if TYPE_CHECKING:
    from agentcho.lab.prove import Proof

GAMES = 4


class ProveOptions(NamedTuple):
    """The arguments of the command. `games` None: all of a file, `GAMES` of a scenario."""

    target: str
    of: str | None
    swap: Any
    stride: int
    games: int | None
    given: Mapping[str, str]
    config: RunConfig
    out: Path
    outputs: Outputs
    display: Kind | None
    free_schedule: bool = False


class Recorded(NamedTuple):
    """The workflows to replay, and the run that they come from, if any."""

    workflows: Sequence[Workflow]
    run: SavedRun | None = None


def prove(asked: ProveOptions) -> int:
    """Play, swap, compare, write and show. Returns the exit code."""
    asked.outputs.check()
    if asked.config.model == "fake":
        raise typer.BadParameter("the fake model computes nothing to compare; give another model", param_hint="--model")
    found = _known(asked)
    with progress("prove", sys.stderr) as told:
        engine: Any = runtime.load_engine(asked.config, told.tell)
        recorded = _played(asked, engine, told) if found is None else found
        if recorded is None:
            return INTERRUPTED
        try:
            proof = _proof(asked, engine, recorded.workflows, told)
            if asked.free_schedule and recorded.run is not None:
                proof = _freed(asked=asked, engine=engine, run=recorded.run, proof=proof, told=told)
        except KeyboardInterrupt:
            return INTERRUPTED
    asked.outputs.write_each({"json": lambda: asked.outputs.json_of(proof), "html": lambda: _page(proof)})
    show(proof, "none" if asked.outputs.json == STDOUT else asked.display, sys.stdout)
    return proof.exit_code


def _proof(asked: ProveOptions, engine: Any, workflows: Sequence[Workflow], told: Progress) -> Proof:
    from agentcho.lab import prove as proving

    source = Path(asked.target).name if asked.target.endswith(".jsonl") else asked.target
    options = {"of": asked.of, "swap": asked.swap, "stride": asked.stride, "seed": asked.config.seed}
    return proving.prove(workflows, engine, source=source, tell=told.tell, **options)


def _freed(asked: ProveOptions, engine: Any, run: SavedRun, proof: Proof, told: Progress) -> Proof:
    """The proof with plays under a free schedule added."""
    from agentcho.lab.prove.free import free

    games = dict(list(run.games().items())[: asked.games])
    found = free(
        scenario=_code(asked, run), config=run.info.config, engine=engine, games=games, of=asked.of, tell=told.tell
    )
    return proof.model_copy(update={"free": found.plays, "skipped": (*proof.skipped, *found.skipped)})


def _code(asked: ProveOptions, run: SavedRun) -> Scenario:
    """The scenario that a run has played, with its options."""
    if nature_of(asked.target, asked.out) == "scenario":
        return library.chosen(asked.target, asked.given)
    try:
        kind = library.scenario(run.info.asked or run.info.scenario)
        return kind(**given_options(kind.Options, run.info.options))
    except AgentchoError as error:
        raise typer.BadParameter(
            f"the code of {run.info.id} was not found, so its games cannot be played: {error}",
            param_hint="--free-schedule",
        ) from None


def _page(proof: Any) -> str:
    from agentcho.lab.prove.html import html

    return html(proof)


def _known(asked: ProveOptions) -> Recorded | None:
    """The workflows of a file or a run; None: the target is a scenario that can be played."""
    nature = nature_of(asked.target, asked.out)
    if nature == "scenario":
        runtime.tasks_of(library.chosen(asked.target, asked.given), asked.config)
        return None
    if asked.given or asked.config.tasks:
        raise typer.BadParameter(f"a {nature} is already played; leave these options out", param_hint="--set, --tasks")
    if nature == "trace" and asked.free_schedule:
        what = "a trace has no code to play; give a scenario or a recorded run"
        raise typer.BadParameter(what, param_hint="--free-schedule")
    run = None if nature == "trace" else _run(asked)
    if run is not None and asked.free_schedule:
        _code(asked, run)
    found = (read_traces(Path(asked.target)) if run is None else run.export())[: asked.games]
    if asked.of is not None and not any(asked.of in one.agents for one in found):
        raise AudienceError(f"there is no agent {asked.of}", {name for one in found for name in one.agents})
    return Recorded(found, run)


def _run(asked: ProveOptions) -> SavedRun:
    """A recorded run whose models are loaded here."""
    run = find(asked.target, asked.out)
    check_local(run)
    return run


def _played(asked: ProveOptions, engine: Any, told: Progress) -> Recorded | None:
    """Play the scenario and record it. None: it was interrupted."""
    config = asked.config.model_copy(update={"games": asked.games or GAMES})
    run = play_recorded(
        target=asked.target,
        scenario=library.chosen(asked.target, asked.given),
        config=config,
        engine=engine,
        out=asked.out,
        display="none",
        told=told,
    )
    return None if run is None else Recorded(run.export(), run)
