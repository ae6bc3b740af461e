"""The cost of safety: ratios computed within each repeat, and a table."""

from __future__ import annotations

from pathlib import Path

from agentcho.lab.bench.result import Result
from tools.bench.cost import ARMS, rows
from tools.bench.tables import table
from tools.pages.speed import page

from .conftest import Values, result

SECONDS = {"debate": (1.0, 1.2, 2.0, 3.0), "tree-of-thoughts": (2.0, 2.0, 8.0, 9.0)}


def measured() -> Result:
    """By hand: enforcing 1.2 and 1.0, deterministic 1.5 and 1.125; deterministic over fast 2 and 4, 2.5 and 4.5."""
    values: Values = {
        (subject, arm): {"ttft": [0.1 * taken] * 3, "seconds": [taken * slow for slow in (1.0, 2.0, 4.0)]}
        for subject, all_ in SECONDS.items()
        for arm, taken in zip(ARMS, all_, strict=True)
    }
    return result(values, bench="cost", model="understudy", dtype="float32", command="agentcho bench cost")


def test_ratios_are_made_within_a_repeat() -> None:
    found = list(rows(measured()))
    assert found[0] == ("debate", "first token", "0.100 s", "1.20", "1.50", "2.00", "2.50")
    assert found[1] == ("", "end to end", "2.000 (1.000-4.000) s", "1.20", "1.50", "2.00", "2.50")
    assert found[3][3:] == ("1.00", "1.12", "4.00", "4.50")
    assert "deterministic ÷ fast, audit" in table(measured())


def test_the_page_has_one_table_of_it(tmp_path: Path) -> None:
    (tmp_path / "bench-cost.json").write_text(measured().model_dump_json())
    written = page(tmp_path)
    assert "## What enforcing costs, and what `--deterministic` costs: understudy, float32\n" in written
    assert "| debate | first token | 0.100 s | 1.20 | 1.50 | 2.00 | 2.50 |\n" in written
    assert "\n\n\n" not in written
