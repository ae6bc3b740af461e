"""The command `agentcho sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentcho.cli import completion
from agentcho.cli.options import GivenOptions, OptionsFrom, fields
from agentcho.cli.outputs import unnamed
from agentcho.cli.shared_options import FILE, SOURCE, AtOnce, Retries, Set, Where
from agentcho.config import RunConfig
from agentcho.games.runs.resume import Changed

SWEPT = "A name from `agentcho ls`, a .py file, or a .yaml file that describes the whole sweep."
GRID = "An option of the scenario or the run, and its values. May be repeated."
MODELS = "Names of models, or .toml files with one model per table."
FILTER = "Only cells with these values; KEY!=VALUE excludes them."
OUT = (
    "Folder of all games, with sweep.csv, games.csv, sweep.json and sweep.png; games in it are not "
    "played again. Default: a new one in runs/."
)
DRY = "List the cells and how many of their games are done, without playing."
OF_RUN = OptionsFrom(
    RunConfig, without=("games", "part"), helps={"model": "Model for all cells.", "seed": "Seed for all cells."}
)


def sweep(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO|FILE", help=SWEPT, autocompletion=completion.scenarios)],
    grid: Annotated[list[str] | None, typer.Option(metavar="KEY=A,B", help=GRID)] = None,
    models: Annotated[str | None, typer.Option(metavar="MODEL,MODEL", help=MODELS, show_default=False)] = None,
    games: Annotated[
        int | None, typer.Option("-n", "--games", min=1, help="Number of games per cell.  [default: 50]")
    ] = None,
    *,
    how: Annotated[GivenOptions, OF_RUN],
    set_: Set = None,
    filter_: Annotated[list[str] | None, typer.Option("--filter", metavar="KEY=A,B", help=FILTER)] = None,
    at_once: AtOnce = None,
    retries: Retries = None,
    where: Where,
    changed: Annotated[Changed, typer.Option(help=SOURCE)] = "refuse",
    dry_run: Annotated[bool, typer.Option("--dry-run", help=DRY)] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help=OUT, show_default=False)] = None,
    json: Annotated[Path | None, typer.Option(metavar=FILE, help="Write the result to this file as JSON.")] = None,
) -> None:
    """Play a scenario under every combination of options, models and seeds, and compare them game by game.

    Exit codes: 0 done, 1 games are not over, 2 wrong usage, 130 after Ctrl-C.
    """
    from agentcho.cli.cluster import cluster
    from agentcho.lab.commands.sweep_run import sweep_cells
    from agentcho.lab.sweep.parse import SweepArguments, asked

    own = SweepArguments(
        scenario=scenario,
        grid=fields("--grid", grid or []),
        models=models,
        set=fields("--set", set_ or []),
        filters=filter_ or [],
        run=how.typed if games is None else {**how.typed, "games": games},
        at_once=at_once,
        retries=retries,
        out=out,
    )
    found = asked(own)._replace(changed=changed, json=json, on=cluster(where, retries))
    if found.out is None and not dry_run:
        found = found._replace(out=unnamed(f"sweep-{Path(scenario).stem}"))
    raise typer.Exit(sweep_cells(found, dry_run))
