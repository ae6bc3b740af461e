"""Writes a comparison into a folder: CSV in long form, JSON, and a plot. Does not know: how it was found."""

from __future__ import annotations

import csv
from pathlib import Path

from agentcho.experiments.comparison import Comparison
from agentcho.experiments.plot import plot


def write(found: Comparison, folder: Path) -> tuple[Path, ...]:
    """compare.csv, compare.json and compare.png; returns their paths."""
    table, whole, picture = (folder / f"compare.{ending}" for ending in ("csv", "json", "png"))
    rows = list(found.rows())
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys() if rows else ["column"])
        writer.writeheader()
        writer.writerows(rows)
    write_json(found, whole)
    plot(found, picture)
    return table, whole, picture


def write_json(found: Comparison, file: Path) -> None:
    """The result alone, replaced whole."""
    fresh = file.with_name(f"{file.name}.new")
    fresh.write_text(found.model_dump_json(indent=1) + "\n", encoding="utf-8")
    fresh.replace(file)
