"""The timing claims of the README: the smallest gain over all results of the current engine, recomputed here from the
files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from agentcho.records.environment import tree_digest
from tools.pages.behind import COMPUTES, computes_as_today
from tools.pages.costs import ends, every, first_screen, sentence, slower
from tools.pages.marks import between
from tools.pages.speed import COST, SPEED, with_sentences

from .conftest import Values, result

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
README = (ROOT / "README.md").read_text()
ENFORCE, AUDIT = "choreographed:enforce", "choreographed:audit"
WORKFLOWS = ("multi-qa", "branch-solve-merge", "prisoners-dilemma", "tree-of-thoughts", "debate", "parallel-debate")


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_bytes())
    return found


def ratios(held: dict[str, Any], these: str, those: str, what: str) -> dict[str, float]:
    """The median over repeats of the ratio between two arms, by subject."""
    values = {(each["subject"], each["arm"]): each["values"].get(what) for each in held["figures"]}
    subjects = dict.fromkeys(each["subject"] for each in held["figures"])
    both = {each: (values.get((each, these)), values.get((each, those))) for each in subjects}
    return {
        subject: median(a / b for a, b in zip(these_, those_, strict=True))
        for subject, (these_, those_) in both.items()
        if these_ and those_
    }


def measured(workflow: str, what: str) -> Iterator[float]:
    """Ratios of baseline to `enforce` for one workflow, from all results that have it and are not sweeps."""
    for file in RESULTS.glob("bench-*.json"):
        held = read(file.name)
        if held["bench"] == "workflows" and not held["sweep"] and (what == "ttft" or held["stepwise"]):
            found = ratios(held, "baseline", ENFORCE, what)
            yield from (ratio for subject, ratio in found.items() if subject.split(",")[0] == workflow)
    rows: list[Any] = next(table["rows"] for table in read("paper-times.json")["times"] if table["name"] == "5")
    for each in rows if what != "encoded" else []:
        if (each["subject"], each["arm"]) == (workflow, ENFORCE):
            yield each["first_ratio" if what == "ttft" else "seconds_ratio"]["middle"]


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_what_it_would_say_of_all_results_is_the_least_gain_of_every_workflow(workflow: str) -> None:
    least = [f"{min(measured(workflow, what)):.2f}" for what in ("ttft", "seconds")]
    told = "\n".join(first_screen(RESULTS, every))
    ((*row, memory),) = re.findall(rf"^\| {workflow} \| (\S+)[^|]*\| (\S+)[^|]*\| (\S+)[^|]*\|$", told, re.MULTILINE)
    assert row == least
    assert memory == f"{min(measured(workflow, 'encoded')):.2f}"


def test_the_readme_says_before_all_else_in_how_many_workflows_the_baseline_is_quicker() -> None:
    behind = sum(min(measured(workflow, "seconds")) < 1 for workflow in WORKFLOWS)
    told = " ".join(first_screen(RESULTS, every))
    assert README.index(f"<!-- {SPEED} -->") < README.index("\n## ")
    assert ("the baseline is faster than `enforce`" in told) is bool(behind)
    if behind:
        said = (
            f"in all {behind} workflows" if behind == len(WORKFLOWS) else f"in {behind} of {len(WORKFLOWS)} workflows"
        )
        assert said in told
        for page in ("docs/speed.md", "docs/leakage.md"):
            assert said in " ".join((ROOT / page).read_text().split()), page


def test_what_it_would_say_of_all_results_is_what_enforcing_cost_in_the_newest() -> None:
    told = sentence(RESULTS, every)
    six, tables = read("bench-six.json"), {table["name"]: table["rows"] for table in read("paper-times.json")["times"]}

    def over_audit(name: str, what: str) -> list[float]:
        seconds = {(each["subject"], each["arm"]): each[what]["middle"] for each in tables[name]}
        return [taken / seconds[subject, AUDIT] for (subject, arm), taken in seconds.items() if arm == ENFORCE]

    def of_paper(what: str) -> list[float]:
        return [ratio for name, ratio in ratios(six, ENFORCE, AUDIT, what).items() if not name.startswith("trace ")]

    first = [*of_paper("ttft"), *over_audit("5", "first")]
    whole = [*of_paper("seconds"), *over_audit("5", "seconds")]
    assert f"first tokens took {min(first):.2f} to {max(first):.2f} times as long as under `audit`" in told
    assert f"whole workflows {min(whole):.2f} to {max(whole):.2f} times" in told
    trees = max(over_audit("f4", "seconds"))
    assert (f"up to {trees:.2f} in trees" in told) is (trees > max(whole))
    crowded = ratios(read("bench-agents.json"), ENFORCE, AUDIT, "ttft")
    assert f"up to {max(crowded.values()):.2f} times as long in parallel debates of 16 agents" in told
    cost = read("bench-cost.json")
    exact = next(each["arm"] for each in cost["figures"] if each["arm"].startswith(ENFORCE) and each["arm"] != ENFORCE)
    exactly = ratios(cost, exact, ENFORCE, "seconds").values()
    assert f"`--deterministic` took {min(exactly):.2f} to {max(exactly):.2f} times as long" in told


def test_the_readme_is_what_the_results_give_and_says_nothing_without_them(tmp_path: Path) -> None:
    assert with_sentences(README, RESULTS) == README
    assert between(with_sentences(README, tmp_path), SPEED) == between(with_sentences(README, tmp_path), COST) == ""


def six(enforce: float) -> Values:
    """Baseline: 1 s in both workflows. `enforce`: that many seconds in one, 0.5 s in the other."""
    arms = {"a": {"baseline": 1.0, ENFORCE: enforce, AUDIT: 1.0}, "b": {"baseline": 1.0, ENFORCE: 0.5, AUDIT: 1.0}}
    return {
        (subject, arm): {"ttft": [taken / 10] * 3, "seconds": [taken] * 3}
        for subject, each in arms.items()
        for arm, taken in each.items()
    }


def test_that_the_baseline_is_quicker_is_said_as_long_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "bench-six.json").write_text(result(six(1.25)).model_dump_json())
    assert (ends(tmp_path)["a"][1].middle, ends(tmp_path)["b"][1].middle) == (0.8, 2.0)
    assert slower(tmp_path) == "1 of 2 workflows (beyond the spread of the repeats in 1)"
    assert "| a | 0.80 | 0.80 |  |" in first_screen(tmp_path, every)
    assert "whole workflows 0.50 to 1.25 times" in sentence(tmp_path, every)
    assert "with the shape of qwen3-0.6b on two" in " ".join(first_screen(tmp_path, every))
    (tmp_path / "bench-more.json").write_text(result(six(0.8), model="understudy", scale=0.1).model_dump_json())
    assert slower(tmp_path) == "1 of 2 workflows (beyond the spread of the repeats in 1)", "the least counts"
    told = " ".join(first_screen(tmp_path, every))
    assert "the bundled model and the shape of qwen3-0.6b (in part with shortened texts) on two" in told
    (tmp_path / "bench-six.json").unlink()
    assert slower(tmp_path) == ""
    assert "the baseline is faster" not in " ".join(first_screen(tmp_path, every))


@pytest.mark.parametrize("changed", [None, *COMPUTES])
def test_the_readme_has_no_figures_of_another_engine_or_runner(changed: str | None, tmp_path: Path) -> None:
    digests = {name: tree_digest(ROOT, name) for name in COMPUTES}
    digests |= {} if changed is None else {changed: "0123456789ab"}
    held = json.loads(result(six(1.25)).model_dump_json())
    held["machine"]["trees"] = " ".join(f"{name}:{digest}" for name, digest in digests.items())
    (tmp_path / "bench-six.json").write_text(json.dumps(held))
    screen, cost = first_screen(tmp_path), sentence(tmp_path)
    if changed is None:
        assert "| a | 0.80 | 0.80 |  |" in screen
        assert "whole workflows 0.50 to 1.25 times" in cost
    else:
        assert re.findall(r"\d", " ".join([*screen, cost])) == []
        assert all("older version of the engine" in each for each in (" ".join(screen), cost))


def test_a_result_without_digests_is_of_no_engine_that_is_known(tmp_path: Path) -> None:
    (tmp_path / "bench-six.json").write_text(result(six(1.25)).model_dump_json())
    assert not computes_as_today(tmp_path / "bench-six.json")


def test_first_tokens_are_said_to_come_sooner_where_they_do() -> None:
    sooner = sum(round(min(measured(workflow, "ttft")), 2) > 1 for workflow in WORKFLOWS)
    surely = sum(first.low > 1 for first, _ in ends(RESULTS).values())
    beyond = f" (beyond the spread of the repeats in {surely or 'none'})" if surely < sooner else ""
    where = f" in {sooner} of {len(WORKFLOWS)} workflows{beyond}"
    assert " ".join(first_screen(RESULTS, every)).startswith(f"First tokens come sooner{where} than if every prompt")
    assert sooner < len(WORKFLOWS), "older results have one that is slower"


def test_gains_within_the_spread_of_the_repeats_are_told_apart(tmp_path: Path) -> None:
    found = six(1.25)
    wide = {"baseline": (1.3, 1.3, 0.9), ENFORCE: (1.0, 1.0, 1.0)}
    figures = tuple(
        each.model_copy(update={"values": {**each.values, "ttft": wide[each.arm]}}) if each.arm in wide else each
        for each in result(found).figures
    )
    (tmp_path / "bench-six.json").write_text(result(found).model_copy(update={"figures": figures}).model_dump_json())
    told = " ".join(first_screen(tmp_path, every))
    assert re.match(
        r"First tokens come sooner in (\d) of \1 workflows \(beyond the spread of the repeats in none\)", told
    )
