"""The command `agentcho prove`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentcho.audit.measurement import Swapped
from agentcho.cli import completion
from agentcho.cli.options import GivenOptions, fields, run_config
from agentcho.cli.shared_options import (
    FILE,
    FREE_SCHEDULE,
    PROVED,
    PROVEN,
    PROVES,
    STRIDE,
    SWAP,
    TARGET,
    Display,
    Runs,
    Set,
)


def prove(
    target: Annotated[str, typer.Argument(metavar="TRACES|SCENARIO", help=TARGET, autocompletion=completion.scenarios)],
    of: Annotated[str | None, typer.Option(metavar="AGENT", help=PROVES, show_default=False)] = None,
    swap: Annotated[Swapped, typer.Option(help=SWAP)] = "same-length",
    html: Annotated[Path | None, typer.Option(metavar=FILE, help="Write the report as one HTML page.")] = None,
    json: Annotated[
        Path | None, typer.Option(metavar=FILE, help="Write the report as JSON; '-' means standard output.")
    ] = None,
    games: Annotated[int | None, typer.Option("-n", "--games", min=1, help=PROVED, show_default=False)] = None,
    stride: Annotated[int, typer.Option(min=1, help=STRIDE)] = 64,
    free_schedule: Annotated[bool, typer.Option("--free-schedule", help=FREE_SCHEDULE)] = False,
    *,
    how: Annotated[GivenOptions, PROVEN],
    set_: Set = None,
    display: Display = None,
    out: Runs = Path("runs"),
) -> None:
    """Swap one agent's secrets, force the same words, and check by hashes that others compute the same.

    This tests your own games; `agentcho probe` tests the cache of any server.

    Exit codes: 0 it holds, 1 something differs under enforce or, with --free-schedule, a reader could observe a
    difference, 2 wrong usage, 3 nothing could be shown.
    """
    from agentcho.cli.outputs import Outputs
    from agentcho.lab.commands.prove_run import ProveOptions
    from agentcho.lab.commands.prove_run import prove as prove_target

    config = run_config(**how, leakage="enforce")
    given, outputs = fields("--set", set_ or []), Outputs(json=json, html=html)
    asked = ProveOptions(
        target=target,
        of=of,
        swap=swap,
        stride=stride,
        games=games,
        given=given,
        config=config,
        out=out,
        outputs=outputs,
        display=display,
        free_schedule=free_schedule,
    )
    raise typer.Exit(prove_target(asked))
