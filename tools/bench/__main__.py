"""`python -m tools.bench`: what is measured on this machine, and where the figures go.

Does not know: how anything is measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentcho.cli import run
from agentcho.cli.speed import (
    NAMED,
    SHAPES,
    UNDERSTUDY,
    Benchmark,
    Dtype,
    Files,
    Json,
    Model,
    Plot,
    Repeats,
    Scale,
    Seed,
    Shape,
    Workflows,
    named,
    paper,
)
from tools.bench import PROGRAM

if TYPE_CHECKING:
    from agentcho.lab.bench.result import Result

Context = Annotated[int, typer.Option(help="Tokens that each row has behind it.", min=16)]


def app() -> typer.Typer:
    """The command line as an object."""
    cli = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help="Measure this machine, one thing at a time.",
    )
    cli.callback()(lambda: None)
    for command in (cost, step, overhead, growth, stall, roofline, gpu):
        cli.command()(command)
    return cli


def _finish(asked: Benchmark, found: Result) -> None:
    from tools.bench.tables import table
    from tools.bench.targets import with_targets

    result = with_targets(found)
    asked.finish(result, table(result))


def cost(
    model: Model = UNDERSTUDY,
    shape: Shape = None,
    dtype: Dtype = "auto",
    workflow: Annotated[
        list[str] | None, typer.Option(help="One or more of the paper's; default: three.", show_default=False)
    ] = None,
    scale: Scale = 1.0,
    repeats: Repeats = 5,
    seed: Seed = 1,
    json_: Json = None,
) -> None:
    """What enforcing costs, and the deterministic profile beside the fast one: four arms in turns, token by token."""
    from agentcho.lab.bench.speed import workflows
    from tools.bench.cost import ARMS, PLAYED

    subjects = paper(workflow or PLAYED, seed, scale)
    asked = Benchmark("cost", named(model, shape), dtype, repeats, seed, Files(json_), program=PROGRAM)
    measure = lambda engine, tell: workflows(engine, subjects, ARMS, repeats, True, tell)  # noqa: E731
    _finish(asked, asked.measured(measure, scale=scale))


def step(
    model: Model = UNDERSTUDY,
    shape: Shape = None,
    dtype: Dtype = "auto",
    context: Context = 512,
    repeats: Repeats = 7,
    seed: Seed = 1,
    json_: Json = None,
    plot: Plot = None,
) -> None:
    """One decode step with one row and with eight (over one message, and "apart": over one each), against a stock
    cached forward."""
    from tools.bench.step import step as measure

    asked = Benchmark("step", named(model, shape), dtype, repeats, seed, Files(json_, plot), program=PROGRAM)
    _finish(asked, asked.measured(lambda engine, tell: measure(engine, context, repeats, seed, tell)))


def overhead(
    model: Model = UNDERSTUDY,
    shape: Shape = None,
    dtype: Dtype = "auto",
    agents: Annotated[int, typer.Option(help="Agents that talk at once on the model.", min=1)] = 64,
    crowd: Annotated[int, typer.Option(help="Agents that ask a fake engine.", min=1)] = 1000,
    each: Annotated[int, typer.Option(help="Requests of each of them.", min=1)] = 20,
    repeats: Repeats = 5,
    seed: Seed = 1,
    json_: Json = None,
    plot: Plot = None,
) -> None:
    """The choreographer's own cost: its share of wall time, and requests a second on a fake engine."""
    from tools.bench.overhead import requests, share

    asked = Benchmark("overhead", named(model, shape), dtype, repeats, seed, Files(json_, plot), program=PROGRAM)
    found = asked.measured(
        lambda engine, tell: [*share(engine, agents, repeats, seed, tell), *requests(crowd, each, repeats, tell)]
    )
    _finish(asked, found)


def growth(
    model: Model = UNDERSTUDY,
    shape: Shape = None,
    dtype: Dtype = "auto",
    size: Annotated[
        list[int] | None, typer.Option(help="Tokens read; default: 1024, doubled up to 8192.", show_default=False)
    ] = None,
    repeats: Repeats = 3,
    seed: Seed = 1,
    json_: Json = None,
    plot: Plot = None,
) -> None:
    """How the time to a first token grows with what is read."""
    from agentcho.lab.bench.arms import OURS
    from tools.bench.growth import growth as measure
    from tools.bench.growth import sizes_of

    def measured(engine: Any, tell: Any) -> Any:
        return measure(engine, sorted(size or sizes_of(engine.context)), list(OURS), repeats, seed, tell)

    asked = Benchmark("growth", named(model, shape), dtype, repeats, seed, Files(json_, plot), program=PROGRAM)
    _finish(asked, asked.measured(measured))


def stall(
    model: Model = UNDERSTUDY,
    shape: Shape = None,
    dtype: Dtype = "auto",
    tokens: Annotated[int, typer.Option(help="Of the prefill.", min=512)] = 4096,
    repeats: Repeats = 3,
    seed: Seed = 1,
    json_: Json = None,
    plot: Plot = None,
) -> None:
    """Times between the tokens of eight speakers, undisturbed and beside a long prefill."""
    from tools.bench.stall import stall as measure

    asked = Benchmark("stall", named(model, shape), dtype, repeats, seed, Files(json_, plot), program=PROGRAM)
    _finish(asked, asked.measured(lambda engine, tell: measure(engine, tokens, repeats, seed, tell)))


def roofline(
    model: Model = UNDERSTUDY,
    shape: Shape = None,
    dtype: Dtype = "auto",
    context: Context = 512,
    repeats: Repeats = 5,
    seed: Seed = 1,
    json_: Json = None,
    plot: Plot = None,
) -> None:
    """What steps take, against what this machine can do."""
    from tools.bench.roofline import roofline as measure

    asked = Benchmark("roofline", named(model, shape), dtype, repeats, seed, Files(json_, plot), program=PROGRAM)
    _finish(asked, asked.measured(lambda engine, tell: measure(engine, context, repeats, seed, tell)))


def gpu(
    shape: Annotated[str, typer.Option(help=SHAPES)] = "llama-3.1-8b",
    model: Annotated[str | None, typer.Option(help=f"Instead of a shape: {NAMED}", show_default=False)] = None,
    device: Annotated[str, typer.Option(help="cuda, cuda:N; cpu, to try it with a small model.")] = "cuda",
    dtype: Dtype = "auto",
    workflow: Workflows = None,
    scale: Scale = 1.0,
    context: Context = 512,
    repeats: Repeats = 3,
    seed: Seed = 1,
    json_: Json = None,
    plot: Plot = None,
) -> None:
    """The table of one GPU: the paper's workflows against continuous batching, a decode step against its weights."""
    from tools.bench.gpu import gpu as measure

    subjects = paper(workflow, seed, scale)
    asked = Benchmark(
        "gpu", model or f"shape:{shape}", dtype, repeats, seed, Files(json_, plot), device=device, program=PROGRAM
    )
    measured = lambda engine, tell: measure(engine, subjects, context, repeats, seed, tell)  # noqa: E731
    _finish(asked, asked.measured(measured, scale=scale))


if __name__ == "__main__":
    run(app())
