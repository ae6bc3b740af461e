"""The page on a real model agrees with its results, and draws them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from agentcho.audit.measurement import Interval
from agentcho.lab.bench.result import Figures, Result
from agentcho.lab.compare.comparison import Comparison
from agentcho.lab.plots import plot_readings
from agentcho.lab.reading.partitions import AGENTS, SALTS
from agentcho.lab.reading.result import (
    Answer,
    ConversationScore,
    DecisionsResult,
    Effect,
    Estimate,
    Exchange,
    FidelityResult,
    NearerBaseline,
    Row,
)
from tools import trainings
from tools.pages import real_model
from tools.pages.marks import keeping_age

ROOT = Path(__file__).parents[2]
FORMATS = ROOT / "tests" / "fixtures" / "formats"
AUDIT, ENFORCE = "choreographed:audit", "choreographed:enforce"
ABOUT: dict[str, Any] = {
    "model": "smollm2",
    "dtype": "float32",
    "device": "cpu",
    "machine": {"machine": "x86_64, 2 cores", "torch": "2.13.0", "commit": "0123456789abcdef"},
    "seed": 1,
}


def share(value: float, half: float = 0.0) -> Estimate:
    return Estimate(value=value, span=Interval(low=value - half, high=value + half, method="by hand"))


def fidelity(nearer: float) -> FidelityResult:
    def row(column: str, kl: float, ratio: float) -> Row:
        more: dict[str, Any] = {"same": share(0.9), "nats": share(3.0), "more": share(0.25)}
        return Row(subject="talks", column=column, games=9, rows=1234, kl=share(kl), encoded=100, ratio=ratio, **more)

    step = NearerBaseline(subject="talks", first=AUDIT, second=ENFORCE, nearer=share(nearer, 0.01), share=7, games=9)
    rows = (row("baseline", 0.0, 1.0), row(AUDIT, 0.2, 0.5), row(ENFORCE, 0.1, 0.9))
    return FidelityResult(**ABOUT, command="agentcho bench fidelity", rows=rows, steps=(step,), reads=())


def decisions(change: float, odds: float, control: float = 0.5) -> DecisionsResult:
    def effect(way: str, told: str, games: int = 20) -> Effect:
        where: dict[str, Any] = {
            "subject": "games",
            "question": "decision",
            "told": told,
            "way": way,
            "games": games,
            "turned": 0,
        }
        return Effect(**where, mean=share(0.9), change=share(change, 0.001), odds=share(odds, 0.01))

    def moved(way: str, size: float) -> Exchange:
        where: dict[str, Any] = {"subject": "games", "question": "decision", "way": way, "games": 20}
        kinds: dict[str, Any] = {"first": "always-cooperate", "second": "always-defect"}
        return Exchange(**where, **kinds, change=share(0.0), odds=share(size, 0.1), size=share(size))

    effects = (effect(AUDIT, "always-defect"), effect(f"{AUDIT}, plan alone", "none"), effect(AUDIT, "none", games=3))
    return DecisionsResult(
        **ABOUT,
        command="agentcho bench decisions",
        reader="bob",
        owner="alice",
        choice="COOPERATE",
        effects=effects,
        moved=(moved("baseline, told", control), moved(AUDIT, 0.2), moved(ENFORCE, 0.0)),
        answers=(),
        left_out={"too long": 2},
    )


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "real-fidelity.json").write_text(fidelity(0.1).model_dump_json())
    (tmp_path / "real-decisions-recorded.json").write_text(decisions(-0.05, -0.3).model_dump_json())
    return tmp_path


def test_the_page_has_every_row(results: Path) -> None:
    page = real_model.page(results)
    assert "| choreographed:enforce | 0.1000 (0.1000 to 0.1000) | 90.0% | +0.2500 (+0.2500 to +0.2500) | 0.90 |" in page
    assert "### talks: 9 conversations, 1,234 tokens said" in page
    assert "| games | decision | always-cooperate less always-defect | choreographed:enforce | 20 |" in page
    assert "Left out: too long (2 times)." in page
    assert "commit 0123456789, seed 1" in page
    assert "| talks | 9 | 90.0%, 0.50 of the tokens | 90.0%, 0.90 of the tokens |  |" in page
    assert "it reused nothing" not in page


def test_a_result_of_other_ways_has_its_own_section_but_no_row_in_the_summary(results: Path) -> None:
    others = fidelity(0.1)
    plain = tuple(row for row in others.rows if row.column not in (AUDIT, ENFORCE))
    (results / "real-fidelity-office-ways.json").write_text(
        others.model_copy(update={"rows": plain, "steps": ()}).model_dump_json()
    )
    page = real_model.page(results)
    assert page.count("### talks: 9 conversations, 1,234 tokens said") == 2
    assert page.count("| talks | 9 | 90.0%, 0.50 of the tokens | 90.0%, 0.90 of the tokens |  |") == 1
    assert "| talks | 9 |  |  |  |" not in page


def test_trees_with_adapters_are_missing_until_they_are_measured(results: Path) -> None:
    told = "the scores of trees of thoughts with adapters"
    assert told in real_model.page(results)
    shutil.copy(ROOT / "docs/results/real-task-one-step-debate-tuned.json", results / f"{real_model.TREES}.json")
    assert told not in real_model.page(results)


@pytest.mark.parametrize(
    ("nearer", "told"),
    [
        (
            0.1,
            "`enforce` is nearer the baseline than `audit`, by a KL of 0.1000 (0.0900 to 0.1100) nats a token, in 7",
        ),
        (
            -0.1,
            "`audit` is nearer the baseline than `enforce`, by a KL of 0.1000 (0.0900 to 0.1100) nats a token, in 2",
        ),
        (0.005, "`audit` and `enforce` are equally near the baseline"),
    ],
)
def test_who_is_nearer_the_baseline_goes_by_the_interval(results: Path, nearer: float, told: str) -> None:
    (results / "real-fidelity.json").write_text(fidelity(nearer).model_dump_json())
    assert f"- talks: {told}" in real_model.page(results)


@pytest.mark.parametrize(
    ("change", "odds", "by_share", "by_odds"),
    [
        (-0.05, -0.3, "reproduced", "reproduced"),
        (0.05, 0.3, "reversed", "reversed"),
        (-0.004, -0.3, "null", "reproduced"),
        (0.0, 0.0, "null", "null"),
    ],
)
def test_effects_of_the_paper_are_judged_by_both(
    results: Path, change: float, odds: float, by_share: str, by_odds: str
) -> None:
    (results / "real-decisions-recorded.json").write_text(decisions(change, odds).model_dump_json())
    page = real_model.page(results)
    row = next(line for line in page.splitlines() if "Table 3: always defect, choreographed |" in line)
    assert row.endswith(f"| {by_share} | {by_odds} |")
    assert "| -26.1 |" in row
    assert "Table 3: free, choreographed" not in page, "three games are too few"
    assert re.search(rf"Judged by the probability of Bob's choice: 2 effects: .*{by_share}", page)
    said = "reproduced in 2 of 2 rows" if by_share == "reproduced" else "not reproduced"
    assert (
        f"(Tables 3 and 7, Figure 8) is {said}: among the effects that are not inconclusive, the largest change" in page
    )
    assert "**Reused encodings carry hidden words to the reader.**" in page
    assert "| games | decision | 20 | +0.500 (+0.400 to +0.600) | 0.500 | 0.200 | 0.000 |" in page


def test_where_the_control_moves_nobody_signs_say_nothing(results: Path) -> None:
    (results / "real-decisions-recorded.json").write_text(decisions(-0.2, -0.9, control=0.05).model_dump_json())
    page = real_model.page(results)
    assert "Judged by the probability of Bob's choice: 2 effects: 2 inconclusive" in page
    assert "is neither shown nor ruled out: the positive control did not move the reader" in page


@pytest.mark.parametrize(("encoded", "beside"), [(100, "0.50 | 0.90"), (101, " | ")])
def test_partitions_stand_beside_ways_on_the_same_conversations(results: Path, encoded: int, beside: str) -> None:
    def of_talk(tokens: int, rows: tuple[Row, ...]) -> str:
        read = ConversationScore(subject="talks", id="1", column="baseline", encoded=tokens)
        return fidelity(0.1).model_copy(update={"reads": (read,), "rows": rows}).model_dump_json()

    base, *others = fidelity(0.1).rows
    (results / "real-fidelity.json").write_text(of_talk(100, (base, *others)))
    parts = [base.model_copy(update={"column": name, "ratio": ratio}) for name, ratio in ((SALTS, 1.25), (AGENTS, 2.5))]
    (results / "real-partitions.json").write_text(of_talk(encoded, (base, *parts)))
    assert f"| talks | 9 | 1.25 | 2.50 | {beside} |" in real_model.page(results)


def test_speed_on_sampled_words_stands_beside_the_same_repeat_of_ours(results: Path) -> None:
    def timed(name: str, arms: dict[str, tuple[float, float]], encoded: float = 1234) -> None:
        each = [
            Figures(
                subject=subject,
                arm=arm,
                values={"seconds": taken, "ttft": (1.0, 1.0), "encoded": (encoded, encoded)},
            )
            for subject in ("trace debate debate-5-0", "trace trees trees-5-0")
            for arm, taken in arms.items()
        ]
        row = Figures(subject="1 row", arm="agentcho", values={"step": (1.0, 1.0)})
        whole = Result(**ABOUT, bench="workflows", command=f"made {name}", repeats=2, figures=(*each, row))
        (results / f"{name}.json").write_text(whole.model_dump_json())

    untimed = "speed on words that it sampled itself, beside"
    assert f"{untimed} transformers, llama.cpp and vLLM" in real_model.page(results)
    timed("real-speed", {"baseline": (3.0, 5.0), ENFORCE: (2.0, 2.0)})
    timed("real-speed-llama", {ENFORCE: (1.0, 4.0), "llama-server": (0.5, 2.0)})
    page = " ".join(real_model.page(results).split())
    assert f"{untimed} vLLM." in page
    assert "vLLM has its prefix cache on" not in page
    cells = "2.00 (1.50-2.50) | not measured | not measured | not measured | 0.50 | not measured |"
    assert f"| debate | {cells}" in page
    sooner = "ended sooner in every repeat in 2 of 2 workflows and later in every repeat in 0"
    assert f"Against baseline, `enforce` on agentcho's own engine {sooner}; over" in page
    assert "later in every repeat in 2; over all of them, llama.cpp took 0.50 times as long" in page
    assert "debate 1,234, trees 1,234." in page
    assert "- `made real-speed-llama`: smollm2, float32; x86_64, 2 cores" in page
    assert "1 row" not in page
    anew = "vLLM (debate 1,234 and 1,235, trees 1,234 and 1,235)"
    timed("real-speed-vllm", {"agentcho+enforce": (1.0, 4.0), "vllm": (0.5, 2.0)})
    assert anew not in real_model.page(results)
    timed("real-speed-vllm", {"agentcho+enforce": (1.0, 4.0), "vllm": (0.5, 2.0)}, encoded=1235)
    assert anew in " ".join(real_model.page(results).split())


def test_a_server_with_salts_stands_beside_the_speeds(results: Path) -> None:
    def measured(salts: float) -> str:
        rows = (
            fidelity(0.0).rows[0],
            *(
                fidelity(0.0).rows[0].model_copy(update={"column": name, "ratio": ratio})
                for name, ratio in ((SALTS, salts), (AGENTS, 2.5), (AGENTS, 1.0))
            ),
        )
        found = fidelity(0.0).model_copy(update={"rows": rows})
        (results / "real-partitions-sampled.json").write_text(found.model_dump_json())
        return " ".join(real_model.page(results).split())

    shutil.copy(ROOT / "docs" / "results" / "real-speed.json", results)
    assert "a prefix cache with a salt for each audience would encode" not in " ".join(real_model.page(results).split())
    page = measured(1.0)
    assert "would encode 1.00 times the baseline's tokens, as many as the baseline itself" in page
    assert "and one for each agent 1.00 to 2.50 times" in page
    page = measured(1.2)
    assert "would encode 1.20 times the baseline's tokens, and one for each agent" in page


def test_decisions_with_adapters_stand_beside_those_without(results: Path) -> None:
    found = decisions(-0.05, -0.3)
    assert "decisions with adapters" in real_model.page(results)
    tuned = [
        found.effects[0].model_copy(update={"way": f"{AUDIT}@mine", "change": share(0.0), "odds": share(0.0, 0.1)})
    ]
    sizes = {f"{AUDIT}@mine": 0.15, f"{ENFORCE}@mine": 0.05}
    moved = [found.moved[1].model_copy(update={"way": way, "size": share(size)}) for way, size in sizes.items()]
    both = found.model_copy(update={"effects": (*found.effects, *tuned), "moved": (*found.moved, *moved)})
    (results / "real-decisions-recorded.json").write_text(both.model_dump_json())
    page = real_model.page(results)
    row = next(line for line in page.splitlines() if "Table 3: always defect, choreographed, tuned |" in line)
    assert row.split(" | ")[-2:] == ["no difference in both", "no difference in both |"]
    assert "| games | decision | 20 | +0.500 (+0.400 to +0.600) | 0.500 | 0.200 | 0.000 | 0.150 | 0.050 |" in page
    assert "decisions with adapters" not in page


def test_answers_with_an_adapter_are_measured_from_the_baseline_that_has_it(results: Path) -> None:
    """Without the adapter reuse moves an answer by 0.4, with it by 0.1; the adapter alone moves the baseline by 2."""
    found = decisions(-0.05, -0.3)
    odds = {"baseline": 1.0, AUDIT: 1.4, "baseline@mine": 3.0, f"{AUDIT}@mine": 2.9}
    answers = [
        Answer(subject="games", id=f"{n}", question="decision", way=way, told="none", own=own, odds=value + n, mass=0.5)
        for n in range(6)
        for way, value in odds.items()
        for own in (True, False)
    ]
    others = [each.model_copy(update={"odds": 9.0}) if not each.own else each for each in answers]
    (results / "real-decisions-recorded.json").write_text(
        found.model_copy(update={"answers": tuple(others)}).model_dump_json()
    )
    page = real_model.page(results)
    row = "| games | decision | 6 | `audit` | 0.400 | 0.100 | -0.300 (-0.300 to -0.300) | +2.000 (+2.000 to +2.000) |"
    assert row in page
    assert "- games: under `audit` Bob's decision is 0.400 nats of log-odds from the baseline's, and with an" in page
    assert "adapter 0.100 from that of the baseline with it: nearer, -0.300 (-0.300 to -0.300)." in page
    without = tuple(each for each in others if each.way != "baseline@mine")
    (results / "real-decisions-recorded.json").write_text(
        found.model_copy(update={"answers": without}).model_dump_json()
    )
    assert "What adapters bring back of Bob's answers" not in real_model.page(results)


def test_a_leak_under_enforcement_is_not_passed_over(results: Path) -> None:
    found = decisions(-0.05, -0.3)
    worse = {ENFORCE: share(0.01)}
    leaking = tuple(each.model_copy(update={"size": worse.get(each.way, each.size)}) for each in found.moved)
    (results / "real-decisions-recorded.json").write_text(found.model_copy(update={"moved": leaking}).model_dump_json())
    assert "do not shift them at all under `enforce`" not in real_model.page(results)


def short_task(scored: float, low: float, high: float) -> Comparison:
    """A comparison of ten games, in which the reference scores 0.75 and the other column something else."""
    found = Comparison.model_validate_json((FORMATS / "compare" / "compare.json").read_bytes())
    [metric] = found.metrics
    by_hand = Interval(low=low, high=high, method="by hand")
    means = {
        "baseline": metric.means["baseline"].model_copy(update={"value": scored, "span": by_hand}),
        AUDIT: metric.means[AUDIT].model_copy(update={"value": scored + (low + high) / 2, "span": by_hand}),
    }
    less = metric.differences[AUDIT].model_copy(update={"value": (low + high) / 2, "span": by_hand})
    scored_too = metric.model_copy(update={"name": "right", "means": means, "differences": {AUDIT: less}})
    return found.model_copy(update={"metrics": (scored_too,)})


def test_tasks_that_differ_by_their_adapters_alone_have_titles_of_their_own(results: Path) -> None:
    plain = short_task(0.75, -0.3, -0.1)
    (metric,) = plain.metrics
    for adapter in ("one", "other"):
        names = {name: f"{name}@{adapter}" if name == AUDIT else name for name in metric.means}
        renamed = metric.model_copy(
            update={
                "means": {names[name]: mean for name, mean in metric.means.items()},
                "differences": {names[name]: each for name, each in metric.differences.items()},
            }
        )
        columns = tuple(
            column.model_copy(update={"adapter": adapter}) if column.name == AUDIT else column
            for column in plain.request.columns
        )
        found = plain.model_copy(
            update={
                "request": plain.request.model_copy(update={"columns": columns}),
                "metrics": (renamed,),
                "without": {names[name]: count for name, count in plain.without.items()},
            }
        )
        (results / f"real-task-{adapter}.json").write_text(found.model_dump_json())
    page = real_model.page(results)
    assert "### Short task: odd, with one\n" in page
    assert "### Short task: odd, with other\n" in page


@pytest.mark.parametrize(
    ("scored", "low", "high", "told"),
    [
        (0.75, -0.3, -0.1, "`audit` lower, -0.200 (-0.300 to -0.100)"),
        (0.75, 0.1, 0.3, "`audit` higher, +0.200 (+0.100 to +0.300)"),
        (0.75, -0.3, 0.1, "`audit` no change shown, -0.100 (-0.300 to +0.100)"),
        (0.05, -0.3, 0.1, "odd: at its floor, 0.050"),
    ],
)
def test_a_short_task_is_told_by_its_interval(results: Path, scored: float, low: float, high: float, told: str) -> None:
    assert "## Short tasks" not in real_model.page(results)
    (results / "real-task-odd.json").write_text(short_task(scored, low, high).model_dump_json())
    page = real_model.page(results)
    assert told in page[: page.index("**Not measured with this model:**")]
    assert f"| {AUDIT} | " in page[page.index("### Short task: odd") :]


@pytest.mark.parametrize(
    ("span", "told"),
    [
        ((-0.3, -0.1), "Table 2 is reproduced in a short form"),
        ((-0.3, 0.1), "Table 2 is not reproduced in a short form"),
    ],
)
def test_table_2_in_its_short_form_is_judged_by_its_intervals(
    results: Path, span: tuple[float, float], told: str
) -> None:
    plain = short_task(0.96, *span)
    (metric,) = plain.metrics
    anew = metric.differences[AUDIT].model_copy(update={"value": -0.05})
    whole = metric.model_copy(update={"differences": metric.differences | {f"{ENFORCE}+full": anew}})
    means = {f"{name}@mine": mean for name, mean in metric.means.items()}
    moved = {f"{name}@mine": each for name, each in metric.differences.items()}
    others = {f"{ENFORCE}@other": metric.differences[AUDIT]}
    adapted = metric.model_copy(update={"means": means, "differences": moved | others})
    columns = tuple(column.model_copy(update={"adapter": "mine"}) for column in plain.request.columns)
    tuned = {"request": plain.request.model_copy(update={"columns": columns}), "metrics": (adapted,)}
    tuned["without"] = {f"{name}@mine": count for name, count in plain.without.items()}
    files = {"serial": plain, "parallel": plain.model_copy(update={"metrics": (whole,)})}
    for name, found in (files | {"tuned": plain.model_copy(update=tuned)}).items():
        assert "Table 2 is" not in real_model.page(results)
        (results / f"real-task-merge-{name}.json").write_text(found.model_dump_json())
    page = real_model.page(results)
    first = page[: page.index("**Short tasks**")]
    assert told in first
    assert "already changes it by -0.050" in first
    assert "with the same adapter, which is near its ceiling (0.960" in first
    assert "`enforce` with other" not in page


def test_a_short_task_is_named_by_its_tasks_and_by_what_it_is_compared_with(results: Path) -> None:
    found = short_task(0.75, -0.3, -0.1)
    request = found.request.model_copy(update={"tasks": "arithmetic:steps=1"})
    (metric,) = found.metrics
    renamed = {f"{name}@mine": mean for name, mean in metric.means.items()}
    moved = {f"{name}@mine": each for name, each in metric.differences.items()}
    tuned = metric.model_copy(update={"means": renamed, "differences": moved})
    without = {f"{name}@mine": count for name, count in found.without.items()}
    columns = tuple(column.model_copy(update={"adapter": "mine"}) for column in request.columns)
    both = request.model_copy(update={"columns": columns})
    whole = found.model_copy(update={"request": both, "metrics": (tuned,), "without": without})
    (results / "real-task-odd.json").write_text(whole.model_dump_json())
    page = real_model.page(results)
    assert "- odd, arithmetic:steps=1, against baseline@mine: right 0.750" in page
    assert "under the baseline@mine; `audit` with mine lower, -0.200" in page


def test_what_was_not_measured_is_not_shown(tmp_path: Path) -> None:
    page = real_model.page(tmp_path)
    assert "has not been measured yet" in page
    assert (
        "the effect of tuning; the scores of the paper's workflows; attacks on sentences in the model's own words"
        in page
    )
    assert "## What tuning brings back" not in page
    assert "## Fidelity" not in page


TUNED = f"{AUDIT}@tuned"


def tuned(*, untuned: float, with_adapter: float) -> FidelityResult:
    """Ten conversations of ten tokens each, with slightly different scores, with and without an adapter."""
    found = fidelity(0.1)
    reads = [
        ConversationScore(subject="talks", id=f"{n}", column=column, rows=10, kl=10 * kl + n / 1000)
        for n in range(10)
        for column, kl in (("baseline", 0.0), (AUDIT, untuned), (TUNED, with_adapter))
    ]
    rows = [row for row in found.rows if row.column != ENFORCE]
    rows.append(rows[-1].model_copy(update={"column": TUNED, "kl": share(with_adapter)}))
    rows[1] = rows[1].model_copy(update={"kl": share(untuned)})
    return found.model_copy(update={"rows": tuple(rows), "reads": tuple(reads), "steps": ()})


@pytest.mark.parametrize(
    ("with_adapter", "told"),
    [
        (
            0.05,
            "takes away 75% (75% to 75%) of DISTANCE; nearer the baseline in 10 of 10 conversations",
        ),
        (
            0.2,
            "shows no change of DISTANCE (the interval of the change, +0% to +0%, includes 0); nearer",
        ),
        (
            0.3,
            "adds 50% (50% to 50%) of DISTANCE; nearer the baseline in 0 of 10 conversations",
        ),
        (
            2.0,
            "makes DISTANCE 10 times as large (10 to 10); nearer the baseline in 0 of 10 conversations",
        ),
    ],
)
def test_what_an_adapter_brings_back_is_told_by_its_interval(results: Path, with_adapter: float, told: str) -> None:
    found, distance = tuned(untuned=0.2, with_adapter=with_adapter), "the divergence from the baseline"
    (results / "real-fidelity-tuned.json").write_text(found.model_dump_json())
    trainings.main([str(FORMATS / "adapter" / "trained"), "--json", str(results / "real-trainings.json")])
    page = real_model.page(results)
    assert f"- talks: under {AUDIT}, the adapter tuned {told.replace('DISTANCE', distance)}" in page
    assert "| tuned |" not in page
    assert "| trained | `audit` | 0.00067 | 3 | 0 | 1 | 6.503 | 6.147 |" in page
    assert "the effect of tuning" not in page


def test_each_comparison_with_adapters_is_told(results: Path) -> None:
    found = tuned(untuned=0.2, with_adapter=0.05)
    other = found.model_copy(
        update={
            "rows": tuple(row.model_copy(update={"subject": "games"}) for row in found.rows),
            "reads": tuple(each.model_copy(update={"subject": "games"}) for each in found.reads),
        }
    )
    for name, each in {"real-fidelity-tuned": found, "real-fidelity-tuned-dilemma": other}.items():
        (results / f"{name}.json").write_text(each.model_dump_json())
    trainings.main([str(FORMATS / "adapter" / "trained"), "--json", str(results / "real-trainings.json")])
    page = real_model.page(results)
    for name in ("talks", "games"):
        assert page.count(f"- {name}: under {AUDIT}, the adapter tuned takes away 75%") == 1
        assert page.count(f"### With and without adapters, {name}: ") == 1


def test_epochs_of_a_training_have_a_table_of_what_each_brings_back(results: Path) -> None:
    found = tuned(untuned=0.2, with_adapter=0.05)
    alone = found.rows[0].model_copy(update={"column": "baseline@tuned", "kl": share(0.0123)})
    found = found.model_copy(update={"rows": (*found.rows, alone)})
    (results / "real-fidelity-tuned-epochs-audit.json").write_text(found.model_dump_json())
    trainings.main([str(FORMATS / "adapter" / "trained"), "--json", str(results / "real-trainings.json")])
    page = real_model.page(results)
    assert "### By epochs" in page
    assert f"| talks | `{AUDIT}` | tuned | -75.0% (-75.0% to -75.0%) | 10 of 10 | 0.0123 |" in page
    assert page.count("#### Adapters of several epochs, talks: ") == 1
    told = "of the 1 measured epochs of one training, tuned changes the divergence most, -75.0% (-75.0% to -75.0%)"
    assert told in page


def test_a_training_that_goes_on_is_no_result(tmp_path: Path) -> None:
    begun = shutil.copytree(FORMATS / "adapter" / "trained", tmp_path / "begun")
    (begun / "going").mkdir()
    with pytest.raises(ValueError, match="begun has not finished"):
        trainings.trained_adapter(begun)


def test_a_checkpoint_that_games_chose_has_their_score(results: Path, tmp_path: Path) -> None:
    ours = shutil.copytree(FORMATS / "adapter" / "trained", tmp_path / "ours")
    trained = json.loads((ours / "agentcho.json").read_text()) | {
        "chosen": {"score": "right", "games": 4, "mean": 0.75}
    }
    (ours / "agentcho.json").write_text(json.dumps(trained))
    lines = [{"step": 0, "dev": 6.5, "score": 0.25}, {"step": 1, "loss": 6.4}, {"step": 2, "dev": 6.1, "score": 0.75}]
    (ours / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    trainings.main([str(ours), "--json", str(results / "real-trainings.json")])
    page = real_model.page(results)
    assert "| adapter | reads | peak rate | traces | minutes | kept | before | epoch 1 |" in page
    assert "| ours | `audit` | 0.00067 | 3 | 0 | 1 | 6.500 (0.25) | 6.100 (0.75) |" in page


def test_an_adapter_of_others_is_no_training(tmp_path: Path) -> None:
    theirs = shutil.copytree(FORMATS / "adapter" / "trained", tmp_path / "theirs")
    (theirs / "agentcho.json").unlink()
    with pytest.raises(ValueError, match=r"theirs: not trained by `agentcho tune`: it has no agentcho\.json"):
        trainings.trained_adapter(theirs)


@pytest.mark.parametrize("name", ["real-leaks-forced", "real-leaks-natural"])
def test_what_attacks_read_stands_first_and_in_a_table(results: Path, name: str) -> None:
    (results / f"{name}.json").write_bytes((ROOT / "docs" / "results" / f"{name}.json").read_bytes())
    page = real_model.page(results)
    told = re.findall(
        r"^- .*\(codes\), attacked by a linear probe and an MLP: "
        r"(.*) from reused encodings, verdict leaks; (.*) from the audience's, verdict",
        page,
        re.M,
    )
    table = page[page.index("## What a public sentence gives away") :]
    for value, way in zip(told[0], ("reuse", "audience"), strict=True):
        assert f"| {way} | {value}, " in table
    assert ("attacks on sentences in the model's own words" in page) == (name == "real-leaks-forced")


def test_the_papers_tables_are_shown_as_they_were_played(results: Path) -> None:
    (results / "real-paper.json").write_bytes((ROOT / "docs" / "results" / "paper.json").read_bytes())
    page = real_model.page(results)
    assert "### Table 1: MultiQA, two questions and one answer to both" in page
    assert "### Table 4" in page
    assert "### Table 3" not in page
    assert "| Table 3 |" not in page
    assert "not measured" not in page.partition("### Which of the paper's effects are here")[2].partition("###")[0]
    assert "**Scores of the paper's workflows** (`agentcho paper`), by the rule of " in page


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    for file in (tmp_path / "front.png", tmp_path / "again.png"):
        plot_readings(fidelity(0.1), file)
    assert (tmp_path / "front.png").read_bytes() == (tmp_path / "again.png").read_bytes()
    assert (tmp_path / "front.png").stat().st_size > 10_000


def test_the_page_that_is_committed_is_made_of_the_results_that_are() -> None:
    file = ROOT / "docs" / "real-model.md"
    committed = file.read_text()
    assert keeping_age(real_model.page(ROOT / "docs" / "results"), committed) == committed, "run `make bench-real`"
