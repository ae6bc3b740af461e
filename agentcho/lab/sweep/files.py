"""Writes the result of a sweep into its folder: figures and games as CSV, everything as JSON, and a plot if it can be
drawn.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agentcho.errors import RecordBroken
from agentcho.lab.compare.comparison import ANEW
from agentcho.lab.sweep.result import SweepResult
from agentcho.records.files import replace_whole, write_errors


def write(found: SweepResult, folder: Path, picture: bool = True) -> tuple[Path, ...]:
    """Write sweep.csv with the figures, games.csv with one row per game, sweep.json, and with `picture` sweep.png.
    Returns their paths."""
    figures, games, whole, drawn = (folder / name for name in ("sweep.csv", "games.csv", "sweep.json", "sweep.png"))
    replace_whole(figures, _csv(found.figures()))
    replace_whole(games, _csv(found.played()))
    write_json(found, whole)
    if not picture:
        return figures, games, whole
    from agentcho.lab.sweep.plot import plot

    with write_errors(drawn):
        plot(found, drawn)
    return figures, games, whole, drawn


def write_json(found: SweepResult, file: Path) -> None:
    """Write only the JSON result, atomically."""
    replace_whole(file, found.model_dump_json(indent=1) + "\n")


def read_result(file: Path) -> SweepResult:
    """Read a result file. `RecordBroken`: it is not a sweep."""
    try:
        return SweepResult.model_validate_json(file.read_bytes())
    except ValueError:
        raise RecordBroken(file, "is not a sweep of this version", ANEW) from None


def _csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as CSV with the union of their columns, in the order of first occurrence."""
    found = list(rows)
    names = list(dict.fromkeys(name for row in found for name in row))
    text = io.StringIO()
    table = csv.DictWriter(text, names, lineterminator="\n")
    table.writeheader()
    table.writerows(found)
    return text.getvalue()
