"""The page on long prompts agrees with its results, and the README shows the largest panel of readers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from agentcho.lab.bench.plans import BRANCHES, DOCUMENTS, LAYOUTS, READERS, VOTERS
from agentcho.lab.bench.result import Result
from tools.pages import where_it_wins
from tools.pages.costs import every, first_screen, panel_name

from .conftest import Values, result

ENFORCE, AUDIT = "choreographed:enforce", "choreographed:audit"
PANELS = [panel_name(tokens, count, ends) for tokens in DOCUMENTS for count in READERS for ends in LAYOUTS.values()]
TREES = [f"{branches} branches, {voters} voters" for voters in VOTERS for branches in BRANCHES]


def swept(subjects: list[str], sweep: str, gain: float, stock: bool = False) -> Result:
    """The baseline takes `gain` times as long as `enforce`, and twice that in the last three subjects."""
    values: Values = {
        (subject, arm): {"ttft": [taken / 10] * 3, "seconds": [taken] * 3}
        for place, subject in enumerate(subjects)
        for arm, taken in (
            ("baseline", gain * (1 + (place >= len(subjects) - 3))),
            (AUDIT, 0.5),
            (ENFORCE, 1.0),
            *([("generate", 0.8)] if stock else ()),
        )
    }
    return result(values, sweep=sweep)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for name in where_it_wins.PANELS:
        (tmp_path / f"{name}.json").write_text(swept(PANELS, "readers", 1.5).model_dump_json())
    (tmp_path / f"{where_it_wins.TREES}.json").write_text(swept(TREES, "branches", 1.1).model_dump_json())
    predicted = {
        name: {
            "predicted": [
                {"subject": subject, "mode": mode, "ttft": seconds / 10, "seconds": seconds}
                for subject in subjects
                for mode, seconds in (("baseline", 3.0), ("audit", 1.0), ("enforce", 1.2))
            ]
        }
        for name, subjects in (("readers", PANELS), ("trees", TREES))
    }
    (tmp_path / "plan.json").write_text(json.dumps(predicted))
    return tmp_path


def six(results: Path) -> None:
    """Adds a workflow of the paper, without which the README has no table."""
    debate = swept(["debate"], "readers", 1.0).model_copy(update={"sweep": None})
    (results / "bench-six.json").write_text(debate.model_dump_json())


def test_the_page_has_every_panel_and_tree_with_its_gains(results: Path) -> None:
    page = where_it_wins.page(results)
    for subject in PANELS:
        assert len(re.findall(rf"^\| {re.escape(subject)} \|", page, re.MULTILINE)) == 3, "two measured, one predicted"
    assert f"| {PANELS[0]} | 3.00 | 1.50 | 3.00 | 1.50 | unknown |" in page
    assert f"| {PANELS[-1]} | 6.00 | 3.00 | 6.00 | 3.00 | unknown |" in page
    assert f"| {PANELS[0]} | 3.00 | 2.50 | 3.00 | 2.50 |" in page
    assert f"| {TREES[0]} | 2.20 | 1.10 | 3.00 | 2.50 |" in page
    assert "| the document, which a prefix cache shares | 3.00 | 3.00 | 2.50 |" in page


def test_the_readme_has_the_largest_panel_of_every_layout(results: Path) -> None:
    (results / "bench-six.json").write_text(
        swept(["debate"], "readers", 1.0).model_copy(update={"sweep": None}).model_dump_json()
    )
    told = first_screen(results, every)
    rows = [line for line in told if "readers of 4,096 tokens" in line]
    assert rows == [f"| 8 readers of 4,096 tokens, {ends} | 3.00 | 3.00 |  |" for ends in LAYOUTS.values()]


def test_it_has_none_of_another_engine(results: Path) -> None:
    (results / "bench-six.json").write_text(
        swept(["debate"], "readers", 1.0).model_copy(update={"sweep": None}).model_dump_json()
    )
    told = first_screen(results, lambda file: file.name != "bench-readers.json")
    assert not any("readers of" in line for line in told)


def test_stock_generate_stands_beside_it_where_it_was_measured(results: Path) -> None:
    six(results)
    assert "Stock `generate`" not in " ".join(first_screen(results, every))
    (results / "bench-readers.json").write_text(swept(PANELS, "readers", 1.5, stock=True).model_dump_json())
    told = " ".join(first_screen(results, every))
    assert "takes 0.80, 0.80, 0.80 times as long as `enforce` to first tokens in the last three rows" in told
    assert f"| {PANELS[0]} | 3.00 | 1.50 | 3.00 | 1.50 | unknown | 0.80 | 0.80 |" in where_it_wins.page(results)
    count = len(PANELS)
    told = " ".join(where_it_wins.page(results).split())
    assert f"in {count} of {count} panels to the first token, and in {count} of {count} end to end.**" in told
