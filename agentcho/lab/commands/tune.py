"""The commands that train: `agentcho trace` and `agentcho tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentcho.cli import completion
from agentcho.cli.options import GivenOptions, OptionsFrom, checked, fields, run_config
from agentcho.cli.shared_options import FILE, FINAL_OF, PEFT, SOURCE, TRACED, Set, Trained, Where
from agentcho.games.runs.resume import Changed
from agentcho.lab.tune.recipe import Recipe

CHOOSE_BY = (
    "Keep the checkpoint with the highest mean of this score, such as correct, in games that follow those of the "
    "traces, played before the training and after each epoch. Default: the lowest loss on traces that are held out."
)

KEEP_EPOCHS = "Keep the adapter of each epoch too, in DIR/epoch-1, DIR/epoch-2, and so on, to compare them."


def trace(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO", help="A name from `agentcho ls`, or a .py file.", autocompletion=completion.scenarios
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar=FILE, help="Append to this file. Games already in it are not played again.")
    ],
    games: Annotated[int, typer.Option("-n", "--games", min=1, help="Number of games.")] = 500,
    first: Annotated[int, typer.Option(min=0, help="Number of the first game.")] = 0,
    *,
    how: Annotated[GivenOptions, TRACED],
    set_: Set = None,
    at_once: Annotated[int, typer.Option(min=1, help="Maximum number of games played at the same time.")] = 50,
    where: Where,
    final_of: Annotated[Path | None, typer.Option(metavar=FILE, help=FINAL_OF, show_default=False)] = None,
    changed: Annotated[Changed, typer.Option(help=SOURCE)] = "refuse",
) -> None:
    """Sample baseline games into a file of traces, to train on or to replay.

    This plays new games; `agentcho show --trace` exports a run that was played already.
    """
    from agentcho.cli.cluster import cluster
    from agentcho.lab.commands.trace_run import TraceOptions
    from agentcho.lab.commands.trace_run import trace as sample_traces

    config = run_config(**how, mode="baseline", leakage="audit")
    on = cluster(where)
    asked = TraceOptions(scenario, fields("--set", set_ or []), config, first, games, out, at_once, final_of, on)
    raise typer.Exit(sample_traces(asked._replace(changed=changed)))


def tune(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO", help="A name from `agentcho ls`, or a .py file.", autocompletion=completion.scenarios
        ),
    ],
    traces: Annotated[
        Path, typer.Option(metavar=FILE, help="Trace file of this scenario, as written by `agentcho trace`.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the adapter. An unfinished training in it is continued.")
    ],
    *,
    how: Trained,
    recipe: Annotated[GivenOptions, OptionsFrom(Recipe)],
    peft: Annotated[Path | None, typer.Option(metavar=FILE, help=PEFT, show_default=False)] = None,
    benchmark: Annotated[
        bool,
        typer.Option(
            "--benchmark", help="Before training, time forward passes over whole traces against passes call by call."
        ),
    ] = False,
    choose_by: Annotated[str | None, typer.Option(metavar="SCORE", help=CHOOSE_BY, show_default=False)] = None,
    choose_games: Annotated[
        int | None,
        typer.Option(min=1, help="Number of games that choose the checkpoint.  [default: 50]", show_default=False),
    ] = None,
    keep_epochs: Annotated[bool, typer.Option("--keep-epochs", help=KEEP_EPOCHS)] = False,
) -> None:
    """Train an adapter so that the choreography says what the traced baseline said."""
    from agentcho.lab.commands.tune_run import TuneOptions
    from agentcho.lab.commands.tune_run import tune as train
    from agentcho.lab.tune.recipe import read_peft

    if choose_games is not None and choose_by is None:
        raise typer.BadParameter("needs --choose-by SCORE", param_hint="--choose-games")
    asked = checked(Recipe, **recipe, peft=None if peft is None else read_peft(peft))
    config = run_config(**how, leakage="audit")
    options = TuneOptions(
        scenario=scenario,
        traces=traces,
        recipe=asked,
        config=config,
        out=out,
        benchmark=benchmark,
        choose_by=choose_by,
        choose_games=choose_games,
        keep_epochs=keep_epochs,
    )
    raise typer.Exit(train(options))
