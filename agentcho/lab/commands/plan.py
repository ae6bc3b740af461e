"""The command `agentcho plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentcho.cli.outputs import drawable, writable
from agentcho.cli.shared_options import FILE
from agentcho.errors import ConfigError, nearest
from agentcho.records.files import write_output

TARGET = "One of the paper's workflows, readers (panels that read long documents), or a file of traces."
GPU = "h100, h200, a100, l40s, rtx-4090, cpu, cpu-float32, or your own TOML file."
SHAPE = "qwen3-0.6b, llama-3.2-1b, llama-3.1-8b or understudy."
GPUS = "Number of machines, each playing its own games."
AGENTS = "Numbers of agents of a parallel debate, or of branches of a tree of thoughts, such as 2,4,8."
GAMES = "Number of games played side by side on one machine."
MODES = "One or more of baseline, audit, enforce."


def plan(
    target: Annotated[str, typer.Argument(metavar="WORKFLOW|TRACES", help=TARGET)],
    gpu: Annotated[str, typer.Option(metavar="NAME|FILE", help=GPU)] = "h100",
    shape: Annotated[str, typer.Option(help=SHAPE)] = "llama-3.1-8b",
    gpus: Annotated[int, typer.Option(min=1, help=GPUS)] = 1,
    agents: Annotated[str | None, typer.Option(metavar="N,…", help=AGENTS, show_default=False)] = None,
    games: Annotated[int, typer.Option("-n", "--games", min=1, max=256, help=GAMES)] = 1,
    modes: Annotated[str, typer.Option(help=MODES)] = "baseline,audit,enforce",
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of workflows read from a trace file.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the random words.")] = 1,
    json: Annotated[
        Path | None,
        typer.Option(metavar=FILE, help="Write the prediction as JSON.", show_default=False, callback=writable),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar=FILE, help="Write a plot to this file.", show_default=False, callback=drawable),
    ] = None,
) -> None:
    """Predict what a workflow would take on a GPU, without one and without a model."""
    from agentcho.display.text_table import plain
    from agentcho.lab.bench.recorded import KINDS
    from agentcho.lab.display.plan import table
    from agentcho.lab.plan.hardware import hardware
    from agentcho.lab.plan.planning import mode_of
    from agentcho.lab.plan.planning import plan as predicted
    from agentcho.lab.plan.shape import shape as cost_shape
    from agentcho.lab.plan.subjects import PANELS, subjects

    machine, model = hardware(gpu), cost_shape(shape)
    named = [mode.strip() for mode in modes.split(",")]
    for mode in named:
        mode_of(mode)
    known = [*KINDS, PANELS]
    if target not in known and not Path(target).exists() and (meant := nearest(target, known)):
        raise ConfigError(f"no workflow or trace file {target!r}; {meant}")
    asked = subjects(target, counts=_counts(agents), games=games, seed=seed, limit=limit)
    found = predicted(asked, named, machine=machine, model=model, gpus=gpus)
    typer.echo(plain(table(found)))
    if json is not None:
        write_output(json, found.model_dump_json(indent=1) + "\n")
    if plot is not None:
        from agentcho.lab.plots import plot_plan

        plot_plan(found, plot)


def _counts(agents: str | None) -> list[int]:
    """The numbers given by `--agents`."""
    if agents is None:
        return []
    words = agents.split(",")
    if not all(word.strip().isdecimal() and int(word) >= 2 for word in words):
        raise typer.BadParameter("give numbers of 2 or more, such as 2,4,8", param_hint="--agents")
    return [int(word) for word in words]
