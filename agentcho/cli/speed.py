"""`agentcho bench workflows`, `cost`, `step`, `growth`, `stall`, `overhead`, `roofline`, `gpu`: what is measured, and
where it goes.

Does not know: how anything is measured.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from agentcho.cli.outputs import drawable, writable
from agentcho.display.progress import progress
from agentcho.extras import require
from agentcho.progress import Tell

if TYPE_CHECKING:
    from agentcho.bench.plans import Subject
    from agentcho.bench.result import Figures

UNDERSTUDY = "understudy"
SWEEP = "Instead of the paper's workflows: branches by voters of a tree of thoughts, or agents of a parallel debate."
ARM = "One or more, such as choreographed:enforce:deterministic; default: the five that are fast."
FIRST = "Time first tokens alone: after its first each text is fed 16 tokens a step, by stock arms at once."
NAMED = "'understudy', a folder, or a Hugging Face id."
Model = Annotated[str, typer.Option(help=NAMED)]
SHAPES = "Random weights of a known shape: qwen3-0.6b, llama-3.2-1b, llama-3.1-8b."
Shape = Annotated[str | None, typer.Option(help=SHAPES, show_default=False)]
Dtype = Annotated[str, typer.Option(help="auto: bfloat16 for a shape, the model's own for others.")]


def _countable(repeats: int) -> int:
    """An option's callback: `ExtraMissing` where what makes intervals of so many is not installed."""
    from agentcho.bench.spread import FEW

    if repeats >= FEW:
        require(f"for an interval of {FEW} repeats and more", "lab")
    return repeats


REPEATS = "Times each arm is measured, after a warm-up; 5 and more need agentcho[lab]."
Repeats = Annotated[int, typer.Option(help=REPEATS, min=1, callback=_countable)]
Seed = Annotated[int, typer.Option(help="Of the random words.")]
SCALED = "Lengths of texts, of those that a model of 8B writes; at 0.1 most are too short for a shadow."
Workflows = Annotated[
    list[str] | None, typer.Option(help="One or more of the paper's; default: all six.", show_default=False)
]
Scale = Annotated[float, typer.Option(help=SCALED, min=0.01)]
JSON = typer.Option("--json", help="Write the figures here.", show_default=False, callback=writable)
Json = Annotated[Path | None, JSON]
Plot = Annotated[Path | None, typer.Option(help="Draw a picture here.", show_default=False, callback=drawable)]
Context = Annotated[int, typer.Option(help="Tokens that each row has behind it.", min=16)]


def workflows(
    model: Model = UNDERSTUDY,
    shape: Shape = None,
    dtype: Dtype = "auto",
    workflow: Workflows = None,
    arm: Annotated[list[str] | None, typer.Option(help=ARM, show_default=False)] = None,
    traces: Annotated[
        Path | None, typer.Option(help="Workflows of a trace file instead of random words.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many of the trace file.", min=1)] = 1,
    sweep: Annotated[Literal["branches", "agents"] | None, typer.Option(help=SWEEP, show_default=False)] = None,
    first: Annotated[bool, typer.Option("--first", help=FIRST)] = False,
    scale: Scale = 1.0,
    repeats: Repeats = 3,
    seed: Seed = 1,
    json_: Json = None,
    plot: Plot = None,
) -> None:
    """The paper's workflows in all arms, which take turns on the same words and weights."""
    from agentcho.bench.arms import USUAL
    from agentcho.bench.speed import workflows as play

    subjects = _subjects(workflow, traces, limit, sweep, seed, scale)
    with progress("bench workflows", sys.stderr) as told:
        engine = _engine(model, shape, dtype, told.tell)
        found = play(engine, subjects, arm or USUAL, repeats, not first, told.tell)
    how = {"bench": "workflows", "scale": scale, "stepwise": not first, "sweep": sweep}
    _finish(engine, found, repeats, seed, json_, plot, **how)


def cost(
    model: Model = UNDERSTUDY, shape: Shape = None, dtype: Dtype = "auto",
    workflow: Annotated[
        list[str] | None, typer.Option(help="One or more of the paper's; default: three.", show_default=False)
    ] = None,
    scale: Scale = 1.0, repeats: Repeats = 5, seed: Seed = 1, json_: Json = None,
) -> None:  # fmt: skip
    """What enforcing costs, and the deterministic profile beside the fast one: four arms in turns, token by token."""
    from agentcho.bench.cost import ARMS, PLAYED
    from agentcho.bench.speed import workflows as play

    subjects = _subjects(workflow or list(PLAYED), None, 1, None, seed, scale)
    with progress("bench cost", sys.stderr) as told:
        engine = _engine(model, shape, dtype, told.tell)
        found = play(engine, subjects, ARMS, repeats, True, told.tell)
    _finish(engine, found, repeats, seed, json_, None, bench="cost", scale=scale)


def step(
    model: Model = UNDERSTUDY, shape: Shape = None, dtype: Dtype = "auto", context: Context = 512, repeats: Repeats = 7,
    seed: Seed = 1, json_: Json = None, plot: Plot = None,
) -> None:  # fmt: skip
    """One decode step with one row and with eight (over one message, and "apart": over one each), against a stock
    cached forward."""
    from agentcho.bench.step import step as measure

    with progress("bench step", sys.stderr) as told:
        engine = _engine(model, shape, dtype, told.tell)
        found = measure(engine, context, repeats, seed, told.tell)
    _finish(engine, found, repeats, seed, json_, plot, bench="step")


def overhead(
    model: Model = UNDERSTUDY, shape: Shape = None, dtype: Dtype = "auto",
    agents: Annotated[int, typer.Option(help="Agents that talk at once on the model.", min=1)] = 64,
    crowd: Annotated[int, typer.Option(help="Agents that ask a fake engine.", min=1)] = 1000,
    each: Annotated[int, typer.Option(help="Requests of each of them.", min=1)] = 20,
    repeats: Repeats = 5, seed: Seed = 1, json_: Json = None, plot: Plot = None,
) -> None:  # fmt: skip
    """The choreographer's own cost: its share of wall time, and requests a second on a fake engine."""
    from agentcho.bench.overhead import requests, share

    with progress("bench overhead", sys.stderr) as told:
        engine = _engine(model, shape, dtype, told.tell)
        found = [*share(engine, agents, repeats, seed, told.tell), *requests(crowd, each, repeats, told.tell)]
    _finish(engine, found, repeats, seed, json_, plot, bench="overhead")


def growth(
    model: Model = UNDERSTUDY, shape: Shape = None, dtype: Dtype = "auto",
    size: Annotated[
        list[int] | None, typer.Option(help="Tokens read; default: 1024, doubled up to 8192.", show_default=False)
    ] = None,
    repeats: Repeats = 3, seed: Seed = 1, json_: Json = None, plot: Plot = None,
) -> None:  # fmt: skip
    """How the time to a first token grows with what is read."""
    from agentcho.bench.arms import OURS
    from agentcho.bench.growth import growth as measure
    from agentcho.bench.growth import sizes_of

    with progress("bench growth", sys.stderr) as told:
        engine = _engine(model, shape, dtype, told.tell)
        found = measure(engine, sorted(size or sizes_of(engine.context)), list(OURS), repeats, seed, told.tell)
    _finish(engine, found, repeats, seed, json_, plot, bench="growth")


def stall(
    model: Model = UNDERSTUDY, shape: Shape = None, dtype: Dtype = "auto",
    tokens: Annotated[int, typer.Option(help="Of the prefill.", min=512)] = 4096,
    repeats: Repeats = 3, seed: Seed = 1, json_: Json = None, plot: Plot = None,
) -> None:  # fmt: skip
    """Times between the tokens of eight speakers, undisturbed and beside a long prefill."""
    from agentcho.bench.stall import stall as measure

    with progress("bench stall", sys.stderr) as told:
        engine = _engine(model, shape, dtype, told.tell)
        found = measure(engine, tokens, repeats, seed, told.tell)
    _finish(engine, found, repeats, seed, json_, plot, bench="stall")


def roofline(
    model: Model = UNDERSTUDY, shape: Shape = None, dtype: Dtype = "auto", context: Context = 512, repeats: Repeats = 5,
    seed: Seed = 1, json_: Json = None, plot: Plot = None,
) -> None:  # fmt: skip
    """What steps take, against what this machine can do."""
    from agentcho.bench.roofline import roofline as measure

    with progress("bench roofline", sys.stderr) as told:
        engine = _engine(model, shape, dtype, told.tell)
        found = measure(engine, context, repeats, seed, told.tell)
    _finish(engine, found, repeats, seed, json_, plot, bench="roofline")


def gpu(
    shape: Annotated[str, typer.Option(help=SHAPES)] = "llama-3.1-8b",
    model: Annotated[str | None, typer.Option(help=f"Instead of a shape: {NAMED}", show_default=False)] = None,
    device: Annotated[str, typer.Option(help="cuda, cuda:N; cpu, to try it with a small model.")] = "cuda",
    dtype: Dtype = "auto", workflow: Workflows = None, scale: Scale = 1.0, context: Context = 512, repeats: Repeats = 3,
    seed: Seed = 1, json_: Json = None, plot: Plot = None,
) -> None:  # fmt: skip
    """The table of one GPU: the paper's workflows against continuous batching, a decode step against its weights."""
    from agentcho.bench.gpu import gpu as measure

    subjects = _subjects(workflow, None, 1, None, seed, scale)
    with progress("bench gpu", sys.stderr) as told:
        engine = _engine(model or UNDERSTUDY, None if model else shape, dtype, told.tell, device)
        found = measure(engine, subjects, context, repeats, seed, told.tell)
    _finish(engine, found, repeats, seed, json_, plot, bench="gpu", scale=scale)


def _subjects(
    named: list[str] | None, traces: Path | None, limit: int, sweep: str | None, seed: int, scale: float
) -> Sequence[Subject]:
    from agentcho.bench import plans
    from agentcho.bench.recorded import KINDS
    from agentcho.records.trace import read_traces

    if sum(bool(given) for given in (named, traces, sweep)) > 1:
        raise typer.BadParameter("give one of --workflow, --traces and --sweep")
    if traces is not None:
        return plans.traced(read_traces(traces)[:limit], scale)
    if sweep is not None:
        return plans.branches(seed, scale) if sweep == "branches" else plans.agents(seed, scale)
    return plans.paper(named or list(KINDS), seed, scale)


def _engine(model: str, shape: str | None, dtype: str, tell: Tell, device: str = "auto") -> Any:
    from agentcho.engine import Engine

    name = model if shape is None else f"shape:{shape}"
    kind = "bfloat16" if dtype == "auto" and name.startswith("shape:") else dtype
    return Engine.load(name, device, kind, tell=tell)


def _finish(
    engine: Any, found: list[Figures], repeats: int, seed: int, json_: Path | None, plot: Path | None, **how: Any
) -> None:
    """Print the table; write what was asked for."""
    from agentcho.bench.result import Result
    from agentcho.bench.speed import table
    from agentcho.bench.targets import with_targets
    from agentcho.engine.device import hardware
    from agentcho.records.environment import machine, versions

    there = machine() | hardware(engine.network.device) | versions()
    where = {key: engine.fingerprint[key] for key in ("model", "dtype", "device")}
    result = with_targets(
        Result(**where, **how, repeats=repeats, seed=seed, command=_command(), machine=there, figures=tuple(found))
    )  # fmt: skip
    typer.echo(table(result))
    if json_ is not None:
        json_.write_text(result.model_dump_json(indent=1) + "\n")
    if plot is not None:
        from agentcho.bench.plots import plot as draw

        draw(result, plot)


def _command() -> str:
    """The command that finds it again, of each path its last name alone."""
    words = (Path(word).name if "/" in word else word for word in sys.argv[1:])
    return shlex.join(["agentcho", *words])
