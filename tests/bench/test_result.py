"""Figures, their intervals, comparison with targets, and the page made from them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from agentcho.errors import RecordBroken, RecordNotFound
from agentcho.lab.bench.arms import AUDIT, BASELINE, ENFORCE
from agentcho.lab.bench.measure import Timed, measure, steady
from agentcho.lab.bench.played import ArmUnavailable
from agentcho.lab.bench.result import Result, Target, read_result
from agentcho.lab.display.bench import heads, row
from agentcho.lab.plots import COLOURS, plot_result
from agentcho.lab.stats import Spread, spread
from agentcho.lab.timing import turns
from agentcho.lab.yardstick import Words, judged, near, worst
from tools.bench.tables import table
from tools.bench.targets import Judged, with_targets
from tools.pages.bars import plot_bars
from tools.pages.marks import without_age
from tools.pages.speed import Gain, draw, page, plot_gains, summary, tally

from .conftest import Values, result

ROOT = Path(__file__).parents[2]
FIRST: Values = {
    ("debate", "choreographed:audit"): {"ttft": [1.0, 2.0, 1.0], "encoded": [10, 10, 10]},
    ("debate", "baseline"): {"ttft": [3.0, 8.0, 2.0], "encoded": [30, 30, 30]},
    ("debate", "generate"): {"ttft": [3.0, 4.0, 2.0], "encoded": [30, 30, 30]},
    ("parallel-debate", "choreographed:audit"): {"ttft": [1.0, 1.0, 1.0], "encoded": [10, 10, 10]},
    ("parallel-debate", "baseline"): {"ttft": [8.0, 8.0, 9.0], "encoded": [30, 30, 30]},
}


def whole(seconds: float) -> dict[str, list[float]]:
    return {"ttft": [0.5], "seconds": [seconds], "prefill": [0.25], "encoded": [9]}


def test_few_repeats_give_the_least_and_the_largest_and_many_a_bootstrap() -> None:
    few, many = spread([3.0, 1.0, 2.0]), spread([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    assert (few.middle, few.low, few.high, few.method) == (2, 1, 3, "least to largest")
    assert many.method == "bootstrap, 95%"
    assert 1 <= many.low < many.middle == 4 < many.high <= 7
    assert spread([1.0, 2.0, 3.0, 4.0, 9.0]) == spread([1.0, 2.0, 3.0, 4.0, 9.0])
    assert few.shown(1, 10) == "20.0 (10.0-30.0)"
    assert spread([2.0]).shown() == "2.00"


def test_arms_take_turns_and_one_that_is_not_there_is_told_of() -> None:
    order: list[str] = []

    def arm(name: str) -> Timed:
        def take(what: str) -> dict[str, float]:
            order.append(what)
            return {"x": len(order)}

        return Timed(lambda: take(f"warm {name}"), lambda: take(name))

    def missing() -> dict[str, float]:
        raise ArmUnavailable("no such thing")

    arms = {"a": arm("a"), "b": arm("b"), "c": Timed(missing, missing), "d": Timed(lambda: {"x": 1}, missing)}
    heard: list[tuple[str, int, int]] = []
    found = measure("s", arms, 2, lambda *told: heard.append(told))
    assert order == ["warm a", "warm b", "a", "b", "b", "a"]
    assert [each.unavailable for each in found] == [None, None, "no such thing", "no such thing"]
    assert found[3].values == {}
    assert found[0].values == {"x": (3, 6)}
    assert turns("abc", 4) == ["b", "c", "a"]
    assert heard[:5] == [(f"runs (s: warming up {name})", number, 12) for number, name in enumerate(arms)] + [
        ("runs (s: a)", 4, 12)
    ]
    assert [done for _, done, _ in heard] == sorted(done for _, done, _ in heard)


def test_what_is_short_is_done_again_and_its_medians_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, values = [0.0], iter([5.0, 1.0, 2.0, 9.0])

    def take() -> dict[str, float]:
        clock[0] += 1.5
        return {"x": next(values)}

    monkeypatch.setattr("agentcho.lab.bench.measure.perf_counter", lambda: clock[0])
    monkeypatch.setattr("agentcho.lab.bench.measure.STEADY", 4.0)
    assert steady(take)() == {"x": 2.0}
    assert clock == [4.5]
    monkeypatch.setattr("agentcho.lab.bench.measure.STEADY", 0.0)
    assert steady(take)() == {"x": 9.0}


def test_ratios_are_made_within_a_repeat_and_stand_beside_their_targets() -> None:
    found = result(FIRST, stepwise=False)
    reached = {each.what: each for each in found.targets}
    debate = reached["first token, debate: baseline ÷ choreographed:audit"]
    assert (debate.bound, debate.reached.middle, debate.reached.low, debate.met) == (3.0, 3.0, 2.0, True)
    assert reached["first token, parallel-debate: baseline ÷ choreographed:audit"].verdict == "missed by 11%"
    stock = reached["first token, all together: generate ÷ baseline"]
    assert (stock.reached.middle, stock.verdict) == (1.0, "met")
    assert "end to end" not in " ".join(reached)
    other = result(FIRST, stepwise=False, model="understudy", dtype="float32")
    assert {each.what for each in other.targets} == {what for what in reached if "generate" in what}


@pytest.mark.parametrize(
    ("kl", "known", "verdict"),
    [
        (None, None, "fast; words not judged"),
        (0.009, None, "met"),
        (0.009, "same", "met"),
        (0.009, "changed", "fast, but changed"),
        (0.011, None, "fast, but changed"),
        (0.011, "same", "fast, but changed"),
        (None, "same", "met"),
        (None, "changed", "fast, but changed"),
    ],
)
def test_what_is_fast_has_met_nothing_unless_it_says_the_same(
    kl: float | None, known: Words | None, verdict: str
) -> None:
    """Words are judged by their divergence and by the comparison of their workflow; both have to agree."""
    words: dict[str, list[float]] = {} if kl is None else {"kl": [kl], "agree": [1.0]}
    values = {("debate", BASELINE): whole(2.0), ("debate", AUDIT): whole(1.0) | words}
    elsewhere: Judged = {} if known is None else {("debate", AUDIT): known}
    (least,) = with_targets(result(values, repeats=1), elsewhere).targets
    assert (least.what, least.verdict) == (f"end to end, the least of all: {BASELINE} ÷ {AUDIT}", verdict)


def test_the_words_of_several_subjects_are_those_of_the_worst() -> None:
    assert worst(["same", "changed", "unknown"]) == "changed"
    assert worst(["same", "unknown"]) == "unknown"
    assert worst(["same", "same"]) == "same"


@pytest.mark.parametrize(
    ("kl", "off", "words"),
    [
        (None, [], "unknown"),
        (0.01, [], "changed"),
        (0.001, [], "unknown"),
        (None, [0.0], "unknown"),
        (None, [0.3], "changed"),
        (0.001, [0.01, -0.01], "same"),
        (0.001, [0.01, -0.02], "changed"),
        (0.5, [0.0], "changed"),
        (0.001, [0.3], "changed"),
    ],
)
def test_words_are_as_good_only_by_their_scores_and_by_how_near_they_are(
    kl: float | None, off: list[float], words: Words
) -> None:
    """Neither suffices: at a ceiling, scores hide what the divergence shows."""
    assert judged(kl, off) == words


@pytest.mark.parametrize(("kl", "words"), [(None, "unknown"), (0.009, "same"), (0.01, "changed")])
def test_where_nothing_is_scored_words_are_near_or_changed(kl: float | None, words: Words) -> None:
    assert near(kl) == words


def test_a_row_of_a_workflow_has_times_and_words() -> None:
    ours = {"kl": [0.2], "agree": [0.875]}
    values = {("debate", BASELINE): whole(2.0), ("debate", "generate"): whole(3.0)}
    values |= {("debate", AUDIT): whole(1.0) | ours, ("debate", ENFORCE): whole(4.0) | ours}
    values |= {("debate", f"{AUDIT}+full"): whole(1.0)}
    found = result(values, repeats=1)
    assert [row(found, "debate", arm)[-3:] for arm in found.arms] == [
        ("", "", ""),
        ("", "", ""),
        ("0.2000", "87.5%", "fast, but changed"),
        ("0.2000", "87.5%", "changed"),
        ("-", "-", "words not judged"),
    ]
    assert {len(row(found, "debate", arm)) for arm in (*found.arms, "none")} == {1 + len(heads(found))}


def test_sweeps_have_a_least_and_a_most() -> None:
    seconds = {2: {"baseline": 2.0, "choreographed:audit": 2.5}, 4: {"baseline": 9.0, "choreographed:audit": 3.0}}
    values = {(f"{n} agents", arm): whole(one) for n, arms in seconds.items() for arm, one in arms.items()}
    least, most = result(values, sweep="agents", repeats=1).targets
    assert (least.note, least.reached.middle, least.verdict) == ("2 agents", 0.8, "missed by 20%")
    assert (most.note, most.bound, most.reached.middle, most.met) == ("4 agents", 2.2, 3.0, True)


def test_the_small_ones_have_theirs() -> None:
    seconds = {"1 row": {"agentcho": 0.11, "stock": 0.1}, "8 rows": {"agentcho": 0.22, "stock": 0.3}}
    step = {(rows, arm): {"seconds": [one]} for rows, arms in seconds.items() for arm, one in arms.items()}
    assert [each.verdict for each in result(step, bench="step").targets] == ["met", "missed by 54%"]
    step |= {("8 rows", "deterministic"): {"seconds": [0.33]}}
    assert [each.verdict for each in result(step, bench="step").targets][2:] == ["met"]


@pytest.mark.parametrize(("kv_dtype", "verdicts"), [(None, ["missed by 15%", "met"]), ("int8", ["missed by 7%"])])
def test_eight_rows_over_a_message_each_are_aimed_at_by_the_form_of_their_keys(
    kv_dtype: str | None, verdicts: list[str]
) -> None:
    step = {
        (rows, "agentcho"): {"seconds": [one]} for rows, one in (("1 row", 1), ("8 rows", 1.5), ("8 rows apart", 1.5))
    }
    assert [each.verdict for each in result(step, bench="step", kv_dtype=kv_dtype).targets] == verdicts
    own = {
        ("64 agents", "choreographer"): {"share": [0.02]},
        ("fake", "choreographer"): {"requests a second": [4000.0]},
    }
    assert [each.verdict for each in result(own, bench="overhead").targets] == ["met", "missed by 20%"]
    assert Target(what="", bound=1.0, reached=spread([0.996])).verdict == "missed by less than 1%"
    first = {1: {"choreographed:audit": 1.0, "baseline": 1.0}, 8: {"choreographed:audit": 2.0, "baseline": 12.0}}
    grown = {(f"{n} tokens", arm): {"ttft": [one]} for n, arms in first.items() for arm, one in arms.items()}
    (only,) = result(grown, bench="growth").targets
    assert (only.reached.middle, only.note, only.met) == (2, "baseline: 12.00", True)


@pytest.mark.parametrize(
    ("repeats", "said"),
    [(1, "reached, but with 1 repeat instead of 5"), (4, "reached, but with 4 repeats instead of 5"), (5, "met")],
)
def test_nothing_is_called_met_in_fewer_than_five_repeats(repeats: int, said: str) -> None:
    found = result(FIRST, stepwise=False).model_copy(update={"repeats": repeats})
    met, missed = (Target(what="x", bound=1, reached=spread([each]), note="", words="same") for each in (2.0, 0.5))
    assert found.verdict(met) == said
    assert found.verdict(missed) == "missed by 50%"
    shown = table(found.model_copy(update={"targets": (met,)}))
    assert said in shown


def test_the_table_says_all_and_the_file_is_read_again(tmp_path: Path) -> None:
    found = result({**FIRST, ("debate", "generate_batch"): {}}, stepwise=False)
    gone = found.figures[-1].model_copy(update={"unavailable": "no kernel"})
    found = found.model_copy(update={"figures": (*found.figures[:-1], gone)})
    shown = table(found)
    assert "not available here: no kernel" in shown
    assert "≥ 9" in shown
    assert "missed by 11%" in shown
    (tmp_path / "bench-x.json").write_text(found.model_dump_json())
    assert read_result(tmp_path / "bench-x.json") == found
    assert "not available here: no kernel" in page(tmp_path)
    with pytest.raises(RecordNotFound):
        read_result(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(RecordBroken):
        read_result(tmp_path / "bad.json")


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"sweep": "agents"}, {"bench": "step"}])
def test_pictures_are_drawn(tmp_path: Path, changes: dict[str, object]) -> None:
    values = {(s, arm): whole(2.0) for s in ("a", "b") for arm in ("baseline", "choreographed:audit", "generate")}
    plot_result(result(values, **changes), tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 5000


def test_the_committed_page_is_what_the_results_give(tmp_path: Path) -> None:
    assert page(ROOT / "docs/results") == without_age((ROOT / "docs/speed-tables.md").read_text())
    assert summary(ROOT / "docs/results") == without_age((ROOT / "docs/speed.md").read_text())
    assert "no results yet" in page(tmp_path)


@pytest.mark.parametrize("file", sorted((ROOT / "docs/results").glob("bench-*.json")), ids=lambda file: file.stem)
def test_every_committed_result_says_where_it_was_found(file: Path) -> None:
    found: Result = read_result(file)
    assert found.machine["commit"] != "none"
    assert found.command.startswith(("agentcho bench ", "python -m tools.bench "))
    assert "/" not in found.command


def test_of_a_debate_with_and_without_names_the_lesser_counts() -> None:
    both: dict[tuple[str, str], dict[str, list[float]]] = {}
    for name, first in (("parallel-debate", 14.0), ("parallel-debate, unnamed", 4.0)):
        both[name, "baseline"], both[name, "choreographed:audit"] = {"ttft": [first] * 3}, {"ttft": [1.0] * 3}
    (reached,) = [each for each in result(both, stepwise=False).targets if "parallel-debate" in each.what]
    assert (reached.reached.middle, reached.note) == (4.0, "parallel-debate, unnamed")


def both_ways() -> Result:
    """A sweep of debates with and without names in their prompts."""
    both: dict[tuple[str, str], Any] = {}
    for name, seconds in (
        ("2 agents", 3.0),
        ("2 agents, unnamed", 2.0),
        ("16 agents", 5.0),
        ("16 agents, unnamed", 1.5),
    ):
        both[name, "baseline"], both[name, "choreographed:audit"] = whole(seconds), whole(1.0)
    return result(both, sweep="agents")


def test_of_a_sweep_the_most_is_of_the_lesser_of_both() -> None:
    reached = {each.what: each for each in both_ways().targets}
    somewhere = reached["end to end, somewhere in a sweep: baseline ÷ choreographed:audit"]
    assert (somewhere.reached.middle, somewhere.note) == (2.0, "2 agents, unnamed")


def test_the_page_shows_the_largest_debate_of_a_result_both_ways_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "bench-agents.json").write_text(both_ways().model_dump_json())
    told = page(tmp_path)
    assert "| 16 agents, end to end | choreographed:audit | 5.00 | 1.50 |" in told
    assert "| 16 agents, first token | choreographed:audit | 1.00 | 1.00 |" in told
    assert "| 2 agents, end to end |" not in told
    assert "of which no result is kept" not in told


def test_of_the_first_table_a_bar_is_filled_only_where_the_words_stay_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **options: drawn.append(figure))
    one, two, three = (Spread(middle=m, low=m / 2, high=2 * m, method="least to largest") for m in (1.0, 2.0, 3.0))
    found = [
        Gain("a", (two, one), None, ("as good", "changed")),
        Gain("b", (three, two), (one, one), ("not judged",) * 2),
    ]
    plot_gains(found, Path("x.png"))
    first, whole = drawn[0].axes
    assert [bar.get_width() for bar in first.patches if isinstance(bar, Rectangle)] == [2.0, 3.0, 1.0, 2.0], (
        "audit's, then enforce's"
    )
    assert [to_hex(bar.get_facecolor()) for bar in first.patches] == [COLOURS[0], *["#ffffff"] * 3]
    assert [bar.get_width() for bar in whole.patches if isinstance(bar, Rectangle)] == [1.0, 1.0]
    assert [label.get_text() for label in first.get_yticklabels()] == ["a", "b"]
    assert found[0].cells == ("a", two.shown(), one.shown(), "", "", "`audit` as good, `enforce` changed")
    assert found[1].cells[3:] == (one.shown(), one.shown(), "not judged")


def test_a_small_benchmark_has_a_bar_for_each_arm_that_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **options: drawn.append(figure))
    times = {"agentcho": 0.1, "deterministic": 0.2, "stock": 0.4}
    values = {("1 row", arm): {"seconds": [each]} for arm, each in times.items()}
    values |= {("8 rows", arm): {"seconds": [2 * times[arm]]} for arm in ("agentcho", "deterministic")}
    plot_bars(result(values, bench="step", repeats=1), Path("x.png"))
    (axis,) = drawn[0].axes
    assert [bar.get_width() for bar in axis.patches if isinstance(bar, Rectangle)] == [0.1, 0.2, 0.2, 0.4, 0.4]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["1 row", "8 rows"]
    assert axis.get_title() == "a decode step, seconds"


def test_every_result_of_speed_but_the_overhead_has_its_picture_on_the_page_of_tables() -> None:
    told = page(ROOT / "docs/results")
    for file in sorted((ROOT / "docs/results").glob("bench-*.json")):
        shown = read_result(file).bench != "overhead"
        assert (f"](speed/{file.stem}.png)" in told) is shown, file.stem
        assert (ROOT / f"docs/speed/{file.stem}.png").is_file() is shown, file.stem


def test_the_page_shows_the_picture_of_its_first_table(tmp_path: Path) -> None:
    (tmp_path / "bench-six.json").write_bytes((ROOT / "docs/results/bench-six.json").read_bytes())
    draw(tmp_path, tmp_path / "speed")
    assert (tmp_path / "speed/gains.png").stat().st_size > 10_000
    assert "](speed/gains.png)\n" in summary(tmp_path)
    assert (ROOT / "docs/speed/gains.png").is_file()


def test_every_target_is_counted_once_as_met_missed_changed_or_open(tmp_path: Path) -> None:
    both = both_ways()
    (tmp_path / "bench-agents.json").write_text(both.model_dump_json())
    rows = re.findall(
        r"\| (met|missed by [^|]*|fast, but changed|fast; words[^|]*|reached, in[^|]*) \|", page(tmp_path)
    )
    met, missed = rows.count("met"), sum(row.startswith("missed") for row in rows)
    changed = rows.count("fast, but changed")
    counts = [int(each) for each in re.findall(r"\d+", tally([both, both]))]
    assert len(rows) == len(both.targets)
    assert counts == [2 * each for each in (len(rows), met, missed, changed, len(rows) - met - missed - changed)]


def test_debates_without_names_have_a_dashed_line_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **options: drawn.append(figure))
    plot_result(both_ways(), Path("x.png"))
    axis = drawn[0].axes[1]
    handles: tuple[list[Any], list[str]] = axis.get_legend_handles_labels()
    lines = {label: handle.lines[0] for handle, label in zip(*handles, strict=True)}
    assert list(lines) == ["choreographed:audit", "choreographed:audit, unnamed"]
    assert [line.get_linestyle() for line in lines.values()] == ["-", "--"]
    assert [list(line.get_ydata()) for line in lines.values()] == [[3.0, 5.0], [2.0, 1.5]]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["2 agents", "16 agents"]


def test_of_societies_time_and_memory_are_drawn_and_no_point_is_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **options: drawn.append(figure))
    found = {"seconds": [0.0133], "memory": [5e5], "peak": [1e9]}
    values = {(subject, "enforce"): found for subject in ("100 agents", "1000 agents")}
    plot_result(result(values, bench="growth", repeats=1), Path("x.png"))
    assert [axis.get_title() for axis in drawn[0].axes] == ["seconds a message", "bytes a message"]
    assert [axis.get_legend() for axis in drawn[0].axes] == [None, None]
    assert [axis.get_ylim()[0] for axis in drawn[0].axes] == [0, 0]
    assert [axis.get_ylim()[1] for axis in drawn[0].axes] == pytest.approx([0.01463, 5.5e5])
    assert drawn[0].get_suptitle().endswith(", 1 repeat")


def test_a_stall_is_beside_the_steps_right_around_it() -> None:
    """Uses the budget whose larger ratio is smallest; contexts are longer where a prefill took longer."""
    times = {
        "undisturbed": {"p95": [0.5]},
        "a prefill of 9 tokens alone": {"prefill": [10.0]},
        "beside a prefill of 9 tokens": {"p95": [0.6], "without": [0.4], "prefill": [40.0]},
        "beside a prefill of 9 tokens, 64 a step": {"p95": [0.3], "without": [0.1], "prefill": [12.0]},
    }
    targets = result({("8 rows", arm): values for arm, values in times.items()}, bench="stall", repeats=1).targets
    assert [each.reached.middle for each in targets] == pytest.approx([3.0, 1.2])


@pytest.mark.parametrize(
    ("kls", "told"),
    [((0.009, 0.009), "as good"), ((0.009, 0.05), "changed"), ((0.05, 0.009), "changed"), ((None, None), "as good")],
)
def test_the_page_takes_the_worse_of_a_comparison_and_of_what_results_found_themselves(
    kls: tuple[float | None, ...], told: str, tmp_path: Path
) -> None:
    (tmp_path / "compare-debate.json").write_bytes((ROOT / "docs/results/compare-debate.json").read_bytes())
    for number, kl in enumerate(kls):
        words: dict[str, list[float]] = {} if kl is None else {"kl": [kl], "agree": [1.0]}
        values = {("debate", arm): whole(1.0) | words for arm in (AUDIT, ENFORCE)} | {("debate", BASELINE): whole(2.0)}
        (tmp_path / f"bench-{number}.json").write_text(result(values, repeats=1).model_dump_json())
    assert f"| debate | 1.00 | 1.00 | 2.00 | 2.00 | {told} |" in summary(tmp_path)
    sooner = "in 0 of 1 workflows under `audit` by medians (in all repeats in 0) and in 0 under `enforce` (in 0)."
    assert sooner in summary(tmp_path), "as soon is not sooner"


def test_of_two_results_the_page_shows_the_lesser_gain_and_all_of_stock(tmp_path: Path) -> None:
    """One result with a twofold gain in which stock is slower, and one with neither."""
    for name, ours, stock in (("bench-a", 2.0, 6.0), ("bench-b", 4.0, 3.0)):
        seconds = {BASELINE: 4.0, "generate": stock, AUDIT: ours, ENFORCE: ours}
        values = {("debate", arm): whole(each) for arm, each in seconds.items()}
        (tmp_path / f"{name}.json").write_text(result(values, repeats=1).model_dump_json())
    said = summary(tmp_path)
    assert "| debate | 1.00 | 1.00 | 1.00 | 1.00 | not judged |" in said
    assert "its workflows 0.75 to 1.50 times. Below 1, `generate` or" in said
