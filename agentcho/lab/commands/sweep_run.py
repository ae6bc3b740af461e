"""Runs `agentcho sweep`: checks, plays and compares the cells, and shows the result."""

from __future__ import annotations

import shutil
import sys

from agentcho.audit.wording import many
from agentcho.cli.signals import INTERRUPTED
from agentcho.display.progress import progress
from agentcho.display.safe import inline
from agentcho.lab.collect import Interrupted
from agentcho.lab.display.sweep import changes, planned, show
from agentcho.lab.sweep import plan as planning
from agentcho.lab.sweep import run
from agentcho.lab.sweep.folder import Folder
from agentcho.lab.sweep.result import SweepResult
from agentcho.lab.sweep.run import SweepOptions, prepared, swept

ESTIMATED = 3
"""The number of finished games from which the remaining time is shown."""


def sweep_cells(asked: SweepOptions, dry_run: bool = False) -> int:
    """Play, compare, show and write. Returns the exit code: 0, 1 if games are not over, or 130 after Ctrl-C; finished
    games are kept. `dry_run`: only list what there is to play."""
    sweep = prepared(asked)
    plan = planning.planned(sweep, None if asked.out is None else Folder(asked.out), asked.changed)
    if dry_run:
        print(planned(sweep, plan, _width()))
        return 0
    for change in changes(plan):
        print(change, file=sys.stderr)
    try:
        with progress("sweep", sys.stderr, least=ESTIMATED) as told:
            found, written = swept(asked, sweep, plan, told.tell)
    except (Interrupted, KeyboardInterrupt):
        print(f"interrupted; to continue, repeat the command with --out {asked.out}", file=sys.stderr)
        return INTERRUPTED
    show(found, sys.stdout, _width())
    if (note := run.lacking()) is not None:
        print(f"\nnote: {note}")
    print(f"\nwritten: {', '.join(str(path) for path in written)}")
    return _code(found)


def _width() -> int | None:
    """The width of the terminal; None: the output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _code(found: SweepResult) -> int:
    trouble = [cell for cell in found.cells if cell.trouble]
    if not trouble:
        return 0
    lacks = sum(cell.failed + cell.left for cell in trouble)
    over = (
        "is not over; repeat the command to play only it"
        if lacks == 1
        else "are not over; repeat the command to play only these"
    )
    what = f"{many(lacks, 'game')} of {many(len(trouble), 'cell')} {over}"
    print(f"error: {inline(what)}", file=sys.stderr)
    return 1
