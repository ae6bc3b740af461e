"""The command `agentcho paper`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from agentcho.cli.options import GivenOptions, OptionsFrom, checked, fields, run_config
from agentcho.cli.shared_options import FILE, HERE, LOADING, SOURCE, Display, Where
from agentcho.config import RunConfig
from agentcho.games.runs.resume import Changed
from agentcho.lab.tune.recipe import Recipe

TABLE = "One or more of 1, 2, 3, 4, 5, 6, 7, f4, f8 and tasks, separated by commas.  [default: all]"
GAMES = "Number of games per row.  [default: 200; with --quick 20]"
QUICK = "20 games per row, no training, short texts for timing; the report says so."
BUDGET = "Begin no new part after this time, such as 90s, 20m or 1.5h; the same command continues."
DATA = "Kind of tasks.  [default: generators for the understudy, published sets for other models]"
TASKS = "Other tasks for a workflow, such as a published set's file: multi-qa=triviaqa:verified.json."
EXPORT = "Write one file with everything that was found (agentcho-paper/1)."
CHECK = "Play nothing; check an exported file and list its faults."
KEPT = "Keep all games, adapters and times here; finished parts are not repeated."
TOP_P = "Share of probability to sample from.  [default: the paper's: 0.95 in Tables 4 to 6, all in the others]"
TRACES = "Maximum number of training traces per row.  [default: as many as the paper, 100 to 500]"
RATE = "Peak learning rate of adapters.  [default: by the model's width; the authors' scripts: 2e-5, 5e-5]"
BATCH = "Traces per training step.  [default: 8; the authors' scripts: 1, 4]"
JUDGE = "A model that compares the texts of Table 2, pair by pair, in both orders."
REPRODUCED = OptionsFrom(
    RunConfig,
    only=("model", *LOADING, "deterministic", "seed", "temperature", "max_tokens", "plain_markers", "template_differs"),
    helps=HERE | {"seed": "Seed of all samples and tasks; training traces use the next one."},
)


def paper(
    table: Annotated[str | None, typer.Option(metavar="TABLES", help=TABLE, show_default=False)] = None,
    games: Annotated[int | None, typer.Option("-n", "--games", min=1, help=GAMES, show_default=False)] = None,
    quick: Annotated[bool, typer.Option("--quick", help=QUICK)] = False,
    budget: Annotated[str | None, typer.Option(metavar="TIME", help=BUDGET, show_default=False)] = None,
    data: Annotated[Literal["generators", "published"] | None, typer.Option(help=DATA, show_default=False)] = None,
    tasks: Annotated[list[str] | None, typer.Option(metavar="WORKFLOW=TASKS", help=TASKS, show_default=False)] = None,
    *,
    how: Annotated[GivenOptions, REPRODUCED],
    top_p: Annotated[float | None, typer.Option(help=TOP_P, show_default=False)] = None,
    traces: Annotated[int | None, typer.Option(min=2, help=TRACES, show_default=False)] = None,
    rate: Annotated[float | None, typer.Option(help=RATE, show_default=False)] = None,
    batch: Annotated[int | None, typer.Option(min=1, help=BATCH, show_default=False)] = None,
    at_once: Annotated[int, typer.Option(min=1, help="Maximum number of games played at the same time.")] = 50,
    where: Where,
    judge: Annotated[str | None, typer.Option(metavar="MODEL", help=JUDGE, show_default=False)] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help=KEPT)] = Path("runs/paper"),
    export: Annotated[Path | None, typer.Option(metavar=FILE, help=EXPORT, show_default=False)] = None,
    html: Annotated[
        Path | None, typer.Option(metavar=FILE, help="Write the report as one HTML page.", show_default=False)
    ] = None,
    check: Annotated[Path | None, typer.Option(metavar=FILE, help=CHECK, show_default=False)] = None,
    display: Display = None,
    changed: Annotated[Changed, typer.Option(help=SOURCE)] = "refuse",
) -> None:
    """Play, train and time every table of the paper (arXiv 2512.23049), and print each beside the paper's figures.

    Exit codes: 0 done, 1 parts are left to play, or the file of --check has errors, 2 wrong usage, 130 after Ctrl-C.
    """
    from agentcho.cli.cluster import cluster
    from agentcho.lab.commands.paper_run import PaperOptions, check_file, reproduce

    if check is not None:
        raise typer.Exit(check_file(check))
    recipe = {name: value for name, value in (("rate", rate), ("batch", batch)) if value is not None}
    checked(Recipe, **recipe)
    sampled = {} if top_p is None else {"top_p": top_p}
    config = run_config(**how, leakage="audit", **sampled)
    asked = PaperOptions(
        tables=table,
        games=games,
        quick=quick,
        budget=budget,
        data=data,
        tasks=fields("--tasks", tasks or []),
        config=config,
        top_p=top_p,
        traces=traces,
        recipe=recipe,
        at_once=at_once,
        on=cluster(where),
        judge=judge,
        out=out,
        export=export,
        html=html,
        display=display,
        changed=changed,
    )
    raise typer.Exit(reproduce(asked))
