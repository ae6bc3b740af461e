"""`agentcho bench`: the benchmarks of this machine, and where their figures are written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from agentcho.cli.options import GivenOptions, OptionsFrom, run_config, spread_options
from agentcho.cli.panels import PanelCommand
from agentcho.cli.shared_options import HERE
from agentcho.config import LOCAL, RunConfig, TemplateChecks
from agentcho.display.progress import progress
from agentcho.lab.commands import judge as judging
from agentcho.lab.commands import leaks as attacks
from agentcho.lab.commands import peers, reading
from agentcho.lab.commands import workflows as speed

ADAPTER = "Adapter of the model: a folder written by `agentcho tune` or peft."
Adapter = Annotated[str | None, typer.Option(metavar="DIR", help=ADAPTER, show_default=False)]
MOVED = {name: name for name in ("cost", "step", "growth", "stall", "overhead", "roofline")} | {"gpu": "gpu-day"}
"""Benchmarks that moved to `tools.bench` in the checkout, and their names there."""
PLAYED = OptionsFrom(
    RunConfig,
    only=("model", "engine", "games", "max_tokens", "seed", "adapter", "template_differs"),
    defaults={"games": 32, "max_tokens": 96},
    helps=HERE | {"games": "Number of games.", "adapter": ADAPTER},
)
RECORDED = "prisoners-dilemma and tree-of-thoughts"
SERVED = "One or more of plain, @baseline, @enforce and 'transformers serve'; default: all."
QUOTE = "Earlier answers in prompts: the recorded words, the same in all arms, or what the server said."
PEER_PYTHON = "Python of an environment with transformers[serving]; default: the command `transformers`, if it exists."
SHAPE, UNDERSTUDY = "shape:qwen3-0.6b", "understudy"


class Benchmarks(TyperGroup):
    """A command group that says where benchmarks have moved."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See `click.Group.resolve_command`."""
        if args and args[0] in MOVED:
            ctx.fail(f"this moved: run `python -m tools.bench {MOVED[args[0]]}` in a checkout of the project")
        return super().resolve_command(ctx, args)


def bench() -> typer.Typer:
    """The commands under `agentcho bench`."""
    group = typer.Typer(cls=Benchmarks, help="Measure this machine.", rich_markup_mode=None, no_args_is_help=True)
    group.callback()(lambda: None)
    recorded = (reading.fidelity, reading.decisions)
    for command in (games, leakage, attacks.leaks, judging.judge, *recorded, speed.workflows, serve, peers.peers):
        group.command(cls=PanelCommand)(spread_options(command))
    return group


def games(
    scenario: Annotated[str, typer.Option(help="Scenario to play.")] = "prisoners-dilemma",
    *,
    how: Annotated[GivenOptions, PLAYED],
) -> None:
    """Compare the time of games played side by side with the same games one after another."""
    from agentcho.games.runs import library
    from agentcho.lab.bench.games import compare
    from agentcho.lab.display import bench as tables

    config = run_config(**how)
    chosen = library.scenario(scenario)()
    with progress("bench games", sys.stderr) as told:
        found = compare(chosen, config, told.tell)
    typer.echo(tables.games(found))


def leakage(
    *,
    model: Annotated[
        list[str] | None,
        typer.Option(help=f"One or more; default: {SHAPE} in bfloat16 and {UNDERSTUDY}.", show_default=False),
    ] = None,
    dtype: Annotated[str, typer.Option(help=speed.DTYPES)] = "auto",
    checked: speed.Checked,
    traces: Annotated[
        Path | None, typer.Option(help="Dilemma games of a trace file instead of random words.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of games read from the trace file.", min=1)] = 2,
    seed: Annotated[int, typer.Option(help="Seed of the random words.")] = 1,
    repeats: Annotated[int, typer.Option(help="Number of timed repeats per arm, after one warm-up.", min=1)] = 3,
    json_: speed.Json = None,
    adapter: Adapter = None,
) -> None:
    """Measure what enforcement costs: audit, enforce and baseline take turns on the same words."""
    from agentcho.games.runs.loading import tell_unfinished
    from agentcho.lab.bench.leakage import LeakageBench, figures, measure
    from agentcho.lab.bench.workflows import dilemma, open_talk
    from agentcho.lab.display import bench as tables
    from agentcho.records.trace import read_traces
    from agentcho.runner.engine import Engine

    played = [dilemma(seed)] if traces is None else read_traces(traces)[:limit]
    found: list[LeakageBench] = []
    tell_unfinished(adapter)
    for name in model or [SHAPE, UNDERSTUDY]:
        kind = speed.kind_of(name, dtype)
        with progress("bench leakage", sys.stderr) as told:
            engine = Engine.load(name, dtype=kind, adapter=adapter, **checked, tell=told.tell)
            spoken = [open_talk(seed, agents=4, rounds=1, words=16)]
            label = f"{name}, {engine.fingerprint['dtype']}, {engine.fingerprint['device']}"
            found.append(
                measure(
                    name=label,
                    engine=engine,
                    timed=[*played, open_talk(seed)],
                    spoken=spoken,
                    repeats=repeats,
                    tell=told.tell,
                )
            )
        typer.echo(f"\n{tables.leakage(found[-1])}\n")
    speed.finished(speed.result_file(json_, "leakage"), json.dumps(figures(found, seed), indent=1) + "\n")


def serve(
    *,
    model: Annotated[str, typer.Option(help=LOCAL)] = UNDERSTUDY,
    dtype: Annotated[str, typer.Option(help="Data type used by all servers.")] = "float32",
    checked: speed.Checked,
    workflow: Annotated[
        list[str] | None,
        typer.Option(help=f"One or more of the paper's workflows; default: {RECORDED}.", show_default=False),
    ] = None,
    traces: Annotated[
        list[Path] | None,
        typer.Option(help="Trace files whose workflows are used instead of random words.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of workflows read from each trace file.", min=1)] = 1,
    scale: speed.Scale = 1.0,
    tokens: Annotated[int, typer.Option(help="Number of tokens per answer when measuring speed.", min=2)] = 64,
    quote: Annotated[Literal["recorded", "said"], typer.Option(help=QUOTE)] = "recorded",
    arm: Annotated[list[str] | None, typer.Option(help=SERVED, show_default=False)] = None,
    peer_python: Annotated[Path | None, typer.Option(help=PEER_PYTHON, show_default=False)] = None,
    repeats: speed.Repeats = 3,
    seed: speed.Seed = 1,
    json_: speed.Json = None,
) -> None:
    """Compare `agentcho serve` with `transformers serve`, each in its own process, on the same prompts over HTTP."""
    from agentcho.lab.bench.servers import version_of
    from agentcho.lab.bench.serving import ARMS, ServingOptions, serving
    from agentcho.lab.display import bench as tables

    if workflow and traces:
        raise typer.BadParameter("give --workflow or --traces, not both")
    files = speed.traced(traces or (), limit, scale)
    subjects = files or speed.paper(workflow or RECORDED.split(" and "), seed, scale)
    served = ServingOptions(
        model=model,
        dtype=dtype,
        tokens=tokens,
        quote=quote,
        repeats=repeats,
        seed=seed,
        peer_python=peer_python,
        checked=TemplateChecks(**checked),
    )
    asked = speed.Benchmark(
        bench="serve",
        model=model,
        dtype=dtype,
        repeats=repeats,
        seed=seed,
        files=speed.Files(speed.result_file(json_, "serve")),
    )
    with progress("bench serve", sys.stderr) as told:
        found = serving(served, subjects, arm or ARMS, told.tell)
    where = {"model": model, "dtype": dtype, "device": "cpu"}
    result = asked.result(
        where, {"peer": version_of(peer_python), "tokens": str(tokens), "quoted": quote}, found, scale=scale
    )
    asked.finish(result, speed.text(tables.serving(result)))
