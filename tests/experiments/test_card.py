"""The page of comparisons is made from its result files and from nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcho.engine.lora_adapter import AdapterTraining
from agentcho.games.runs.discovery import Found, listing
from agentcho.lab.compare.compare import read_comparison
from agentcho.reuse.registry import usual_repairs, usual_ways
from tools.pages.comparisons import ORDER, beside, draw, page, paper
from tools.pages.marks import without_age

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "docs/results").glob("compare-*.json"))


def test_the_committed_page_is_what_the_results_give() -> None:
    assert page(ROOT / "docs/results") == without_age((ROOT / "docs/comparisons.md").read_text())


def test_every_result_says_where_it_was_found_and_of_which_games() -> None:
    found = [read_comparison(file) for file in RESULTS]
    assert {each.request.scenario for each in found} == set(ORDER)
    for each in found:
        every = len(each.methods) == len(usual_repairs()) + len(usual_ways()) - 1
        assert each.request.games >= (20 if every else 200), "of every way of reuse there is a column, so fewer games"
        assert each.machine["commit"] != "none"
        assert set(each.machine) >= {"machine", "python", "torch", "transformers", "agentcho"}
        assert each.command.startswith(f"agentcho compare {each.request.scenario} ")


def test_every_scenario_of_the_paper_has_its_figures() -> None:
    """AgentLeak and PrivacyLens are of other papers."""
    assert all(paper(name) for name in ORDER)
    assert "MADpar, choreographed, tuned 60.0%; MADpar, distilled 5.2%." in str(paper("parallel-debate"))
    shipped = {found.name for found in listing("scenarios") if isinstance(found, Found)}
    assert {*ORDER, "agentleak", "privacylens"} == shipped


def test_a_picture_and_the_front_stand_where_the_picture_lies_beside_the_results(tmp_path: Path) -> None:
    name, results = "compare-tree-of-thoughts-repair", tmp_path / "results"
    results.mkdir()
    (results / f"{name}.json").write_bytes((ROOT / "docs" / "results" / f"{name}.json").read_bytes())
    assert "Pareto" not in page(results)
    (tmp_path / "fronts").mkdir()
    (tmp_path / "fronts" / f"{name}.png").touch()
    (line,) = (line for line in page(results).splitlines() if "Pareto" in line)
    assert line.endswith(f": {', '.join(read_comparison(results / f'{name}.json').front)}.")
    assert f"](fronts/{name}.png)" in page(results)


def test_every_comparison_with_fidelity_has_its_picture_which_its_result_gives(tmp_path: Path) -> None:
    name = "compare-direct"
    (tmp_path / f"{name}.json").write_bytes((ROOT / "docs/results" / f"{name}.json").read_bytes())
    draw(tmp_path, tmp_path / "fronts")
    assert [file.name for file in (tmp_path / "fronts").iterdir()] == [f"{name}.png"]
    assert (tmp_path / "fronts" / f"{name}.png").stat().st_size > 10_000
    told = page(ROOT / "docs/results")
    shown = {file.stem for file in RESULTS if f"](fronts/{file.stem}.png)" in told}
    assert shown == {file.stem for file in RESULTS if read_comparison(file).fidelity}


def test_without_results_only_the_words_are_left(tmp_path: Path) -> None:
    bare = page(tmp_path)
    assert "belong to another model" in bare
    assert "as good as the baseline" not in bare
    assert "| metric |" not in bare


def tuned(folder: Path, values: dict[str, float]) -> str:
    """The page of a comparison whose first metric has these means; the column "tuned" has an adapter."""
    found = read_comparison(ROOT / "docs/results/compare-multi-qa.json")
    plain = found.request.columns[1]
    other = plain.model_copy(update={"adapter": "one"})
    columns = {"baseline": found.request.columns[0], "plain": plain, "tuned": other}
    first = found.metrics[0]
    means = {columns[key].name: first.means["baseline"].model_copy(update={"value": v}) for key, v in values.items()}
    asked = found.request.model_copy(update={"columns": tuple(columns[key] for key in values)})
    metric = first.model_copy(update={"means": means, "differences": {}})
    made = found.model_copy(update={"request": asked, "metrics": (metric,), "fidelity": {}, "costs": {}})
    (folder / "compare-x.json").write_text(made.model_dump_json())
    return page(folder)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"baseline": 0.9, "plain": 0.5, "tuned": 0.86}, "`choreographed:audit@one` brings back 90% of what"),
        ({"baseline": 0.9, "plain": 0.5, "tuned": 0.4}, "`choreographed:audit@one` brings back -25% of what"),
        ({"baseline": 0.9, "plain": 0.86, "tuned": 0.87}, "lost less than 5 points in all right; `chor"),
    ],
)
def test_what_tuning_brings_back_is_told_as_it_is(tmp_path: Path, values: dict[str, float], told: str) -> None:
    assert told in tuned(tmp_path, values)


def test_without_the_column_that_it_mends_nothing_is_told(tmp_path: Path) -> None:
    assert "brings back" not in tuned(tmp_path, {"baseline": 0.9, "tuned": 0.86})


def test_adapters_are_told_with_their_losses_and_speed(tmp_path: Path) -> None:
    trained = AdapterTraining(
        scenario="multi-qa", mode="choreographed", leakage="enforce", base={}, recipe={}, traces="", train=108, dev=12,
        before=0.5, best=0.0123, step=56, tokens=1, seconds=90, machine={"commit": "c" * 40},
        speed={"whole": 20.0, "by_calls": 5.0, "ratio": [4.0, 3.9, 4.1]},
    )  # fmt: skip
    (tmp_path / "adapter-x.json").write_text(trained.model_dump_json())
    line = "| multi-qa | choreographed:enforce | 108 | 56 | 0.500 → 0.012 | 1.5 | cccccccccc | 20.0 | 5.0 | 4.0 |"
    assert line in page(tmp_path)


def test_columns_are_held_beside_the_papers_effects_by_one_rule() -> None:
    """Effects found in both, effects not found here, and effects that a ceiling hides."""
    told = {
        name: beside(read_comparison(ROOT / "docs" / "results" / f"compare-{name}.json"))
        for name in ("multi-qa", "prisoners-dilemma", "tree-of-thoughts", "parallel-debate", "direct")
    }
    assert str(told["multi-qa"]).startswith("`choreographed:audit` reproduced")
    assert str(told["prisoners-dilemma"]).startswith("`choreographed:audit` null")
    assert str(told["tree-of-thoughts"]).startswith("`choreographed:audit` null, at ceiling")
    assert told["parallel-debate"] is told["direct"] is None, "the paper's agents have no names"
