"""The page on leaks is generated from its result files alone."""

from __future__ import annotations

from pathlib import Path

from tools.pages.leakage import AUDITS, page
from tools.pages.marks import without_age

ROOT = Path(__file__).parents[2]


def test_the_committed_page_is_what_the_results_give() -> None:
    assert page(ROOT / "docs/results") == without_age((ROOT / "docs/leakage.md").read_text())


def test_what_has_no_result_is_left_out(tmp_path: Path) -> None:
    bare = page(tmp_path)
    assert "## The claim" in bare
    assert "## Mutants" not in bare
    assert "## What enforcing costs" not in bare
    assert all(title not in bare for _, title, _ in AUDITS)
