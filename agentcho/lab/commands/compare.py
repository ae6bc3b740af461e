"""The command `agentcho compare`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentcho.cli import completion
from agentcho.cli.options import GivenOptions, OptionsFrom, fields, run_config
from agentcho.cli.outputs import unnamed
from agentcho.cli.shared_options import COMPARED, FILE, HERE, JUDGE, MODES, REPAIRS, SOURCE, WAYS, Plot, Set, Where
from agentcho.cli.signals import INTERRUPTED
from agentcho.config import RunConfig
from agentcho.display.progress import progress
from agentcho.games.runs.resume import Changed
from agentcho.lab.compare.columns import DEFAULT_MODES, OF_COLUMNS

if TYPE_CHECKING:
    from agentcho.lab.compare.run import CompareOptions

COLUMNS = OptionsFrom(RunConfig, without=OF_COLUMNS, helps=HERE)
"""The options that all columns share."""


def compare(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO", help="A name from `agentcho ls`, or a .py file.", autocompletion=completion.scenarios
        ),
    ],
    modes: Annotated[str, typer.Option(metavar="COLUMNS", help=MODES)] = DEFAULT_MODES,
    games: Annotated[
        int, typer.Option("-n", "--games", min=1, help="Number of games per column, paired by task and seed.")
    ] = 200,
    *,
    how: Annotated[GivenOptions, COLUMNS],
    set_: Set = None,
    reuse: Annotated[str | None, typer.Option(metavar="WAYS", help=WAYS, show_default=False)] = None,
    repair: Annotated[str | None, typer.Option(metavar="REPAIRS", help=REPAIRS, show_default=False)] = None,
    adapter: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Adapter for choreographed columns without one.", show_default=False),
    ] = None,
    at_once: Annotated[int, typer.Option(min=1, help="Maximum number of games played at the same time.")] = 50,
    where: Where,
    fidelity_games: Annotated[
        int,
        typer.Option(min=0, help="Number of games on which next-token distributions are compared with the baseline."),
    ] = 24,
    timed_games: Annotated[int, typer.Option(min=0, help="Number of games on which costs are timed.")] = 4,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help=COMPARED, show_default=False)] = None,
    json: Annotated[Path | None, typer.Option(metavar=FILE, help="Write the result to this file as JSON.")] = None,
    plot: Plot = None,
    judge: Annotated[str | None, typer.Option(metavar="MODEL", help=JUDGE, show_default=False)] = None,
    changed: Annotated[Changed, typer.Option(help=SOURCE)] = "refuse",
) -> None:
    """Play a scenario in several ways, game by game the same tasks and seeds, and compare."""
    from agentcho.cli.cluster import cluster
    from agentcho.lab.compare.compare import Effort
    from agentcho.lab.compare.run import CompareOptions

    config, effort = run_config(**how, games=games), Effort(fidelity_games, timed_games)
    given = fields("--set", set_ or [])
    out = out or unnamed(f"compare-{Path(scenario).stem}")
    on = cluster(where)
    asked = CompareOptions(scenario, modes, repair, adapter, given, config, effort, out, json, judge, at_once, on)
    asked = asked._replace(reuse=reuse, plot=plot, changed=changed)
    raise typer.Exit(_compare(asked))


def _compare(asked: CompareOptions) -> int:
    """Play, compare, show and write. Returns the exit code: 0, or 130 after Ctrl-C; finished games are kept."""
    from agentcho.lab.collect import Interrupted
    from agentcho.lab.compare.run import compared
    from agentcho.lab.display.compare import show

    with progress("compare", sys.stderr) as told:
        try:
            result, files = compared(asked, told.tell)
        except (Interrupted, KeyboardInterrupt):
            told.clear()
            print(f"interrupted; to continue, repeat the command with --out {asked.out}", file=sys.stderr)
            return INTERRUPTED
        told.clear()
    show(result, sys.stdout)
    if files:
        print(f"\nwritten: {', '.join(map(str, files))}")
    return 0
