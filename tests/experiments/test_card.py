"""The page of comparisons is made from its result files, and from nothing else."""

from __future__ import annotations

from pathlib import Path

from agentcho.experiments.card import PAPER, page
from agentcho.experiments.compare import read_comparison
from agentcho.shelf import Found, listing

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "docs/results").glob("compare-*.json"))


def test_the_committed_page_is_what_the_results_give() -> None:
    assert page(ROOT / "docs/results") == (ROOT / "docs/comparisons.md").read_text()


def test_every_result_says_where_it_was_found_and_of_which_games() -> None:
    found = [read_comparison(file) for file in RESULTS]
    assert {each.request.scenario for each in found} == set(PAPER)
    for each in found:
        assert each.request.games >= 200
        assert each.machine["commit"] != "none"
        assert set(each.machine) >= {"machine", "python", "torch", "transformers", "agentcho"}
        assert each.command.startswith(f"agentcho compare {each.request.scenario} ")


def test_every_scenario_has_its_figures_of_the_paper() -> None:
    assert set(PAPER) == {found.name for found in listing("scenarios") if isinstance(found, Found)}


def test_without_results_only_the_words_are_left(tmp_path: Path) -> None:
    bare = page(tmp_path)
    assert "of another model" in bare
    assert "| metric |" not in bare
