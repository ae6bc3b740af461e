"""Writes a comparison into a folder: CSV in long form, JSON, and a plot."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from agentcho.lab.compare.comparison import Comparison, Row
from agentcho.lab.plots import plot_comparison, plot_front
from agentcho.records.files import replace_whole, write_errors


def write(found: Comparison, folder: Path) -> tuple[Path, ...]:
    """Write compare.csv, compare.json and compare.png; returns their paths."""
    table, whole, picture = (folder / f"compare.{ending}" for ending in ("csv", "json", "png"))
    text = io.StringIO()
    csv.writer(text).writerows([Row._fields, *found.rows()])
    replace_whole(table, text.getvalue())
    write_json(found, whole)
    with write_errors(picture):
        plot_comparison(found, picture)
    return table, whole, picture


def draw(found: Comparison, file: Path) -> None:
    """Plot fidelity against cost. `ConfigError`: there is nothing to plot."""
    with write_errors(file):
        plot_front(found, file)


def write_json(found: Comparison, file: Path) -> None:
    """Write only the JSON result, atomically."""
    replace_whole(file, found.model_dump_json(indent=1) + "\n")
