"""How much of a loss tuning recovers, in words; and the page on the paper's tables, which is made from its file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from agentcho.audit.measurement import Interval
from agentcho.lab.compare.comparison import Difference, Mean, Preference
from agentcho.lab.paper.aligned import NOT_MEASURED, aligned
from agentcho.lab.paper.effects import SCORES, Effect, bounded, effects, expected, verdict
from agentcho.lab.paper.figures import QWEN_8B
from agentcho.lab.paper.found import PaperFound, RowFound, Score, TableFound
from agentcho.lab.paper.tables import TABLES, table_named
from agentcho.lab.paper.wording import BACK, NO_JUDGE, grids, summary
from agentcho.lab.stats import holm
from tools.pages.marks import without_age
from tools.pages.paper import differences, page, plot_effects, text

DOCS = Path(__file__).parents[2] / "docs"


def found(values: dict[str, float], games: int = 200) -> PaperFound:
    """Table 1 with these means of its first score."""
    table = table_named("1")
    rows = []
    for row in table.rows:
        about = {"label": row.label, "scenario": row.scenario, "options": dict(row.options), "mode": row.mode}
        mean = Mean(games=games, value=values.get(row.label, 0), span=Interval(low=0, high=1, method="exact"))
        made = RowFound.model_validate(about | {"adapter": row.adapter, "against": row.against, "games": games})
        lost = values.get(row.label, 0) - values.get(row.against or row.label, 0)
        span = Interval(low=lost - 0.02, high=lost + 0.02, method="bootstrap")
        paired = Difference(games=games, value=lost, span=span, p=0.01, holm=0.02, test="bootstrap")
        difference = paired if row.against in values else None
        there = {"all right": Score(mean=mean, paper=printed(row.label), difference=difference)}
        lacking = {"left_out": "not asked for"}
        rows.append(made.model_copy(update={"scores": there} if row.label in values else lacking))
    told = TableFound(name="1", title=table.title, scores=("all right",), binary=("all right",), rows=tuple(rows))
    where = {"machine": {"machine": "x86_64", "trees": "m:1"}, "modules": "ab" * 32, "model": {"name": "understudy"}}
    played = {"command": "agentcho paper", "quick": False, "games": games, "seed": 0, "data": "generators"}
    sampled = {"temperature": 0.7, "top_p": 0.95, "max_tokens": 256, "tables": (told,)}
    return PaperFound.model_validate(where | played | sampled).signed()


def printed(label: str) -> float | None:
    figure = table_named("1").paper(label, "all right")
    return None if figure is None else figure.value


def back(values: dict[str, float], games: int = 200) -> tuple[tuple[str, ...], ...]:
    return tuple(row for grid in grids(found(values, games)) if grid.title.endswith(BACK) for row in grid.rows)


ALL = {
    "baseline, serial": 0.9,
    "choreographed, serial": 0.1,
    "choreographed, parallel": 0.5,
    "choreographed, serial, tuned": 0.7,
    "choreographed, parallel, tuned": 0.95,
    "baseline, serial, tuned": 0.92,
}


def test_what_is_brought_back_is_of_what_the_same_layout_had_lost() -> None:
    assert back(ALL) == (
        ("choreographed, serial, tuned", "all right", "90.0%", "10.0%", "70.0%", "75%"),
        ("choreographed, parallel, tuned", "all right", "90.0%", "50.0%", "95.0%", "112%"),
    )


@pytest.mark.parametrize("reused", [0.89, 0.9, 0.95])
def test_where_no_loss_is_shown_there_is_no_share_of_it(reused: float) -> None:
    """A loss within 2 points may be none."""
    told = [row[-1] for row in back(ALL | {"choreographed, serial": reused})]
    assert told == ["no loss is shown", "112%"]


@pytest.mark.parametrize("lacking", ["baseline, serial", "choreographed, serial", "choreographed, serial, tuned"])
def test_of_a_row_that_was_left_out_nothing_is_said(lacking: str) -> None:
    values = {label: value for label, value in ALL.items() if label != lacking}
    assert "choreographed, serial, tuned" not in {row[0] for row in back(values)}


def test_nothing_is_said_of_rows_without_a_game() -> None:
    assert back(ALL, games=0) == ()


def test_of_a_tuned_row_that_has_no_fellow_nothing_is_said() -> None:
    """Such as in a file written by others."""
    table = found(ALL).tables[0]
    alone = table.model_copy(update={"rows": tuple(row for row in table.rows if row.adapter == "tuned")})
    shown = grids(found(ALL).model_copy(update={"tables": (alone,)}))
    assert not any(grid.title.endswith(BACK) for grid in shown)


def test_that_nobody_judged_is_said_of_the_table_that_has_wins_in_the_paper() -> None:
    first = found(ALL).tables[0]
    stories = tuple(row.model_copy(update={"scenario": "branch-solve-merge"}) for row in first.rows)
    second = first.model_copy(update={"name": "2", "rows": stories})
    told = Preference(games=2, wins=1, losses=0, ties=1, share=1, span=Interval(low=0, high=1, method="exact"), p=1)
    judged = second.model_copy(update={"rows": (second.rows[0].model_copy(update={"preferred": told}),)})
    for table, lacks in ((first, False), (second, True), (judged, False)):
        shown = grids(found(ALL).model_copy(update={"tables": (table,)}))
        assert (NO_JUDGE in shown[0].notes) == lacks


def test_the_page_begins_with_what_tuning_brings_back_and_has_every_table() -> None:
    made = text({"paper.json": found(ALL)})
    told = "all right 90.0% in the baseline, 10.0% reused, 70.0% tuned (75% of what was lost)"
    assert f"- Table 1, choreographed, serial, tuned: {told}\n" in made
    measured, lacking = "10.0% (0.0% to 100.0%) | 0.4%", "not measured | 2.0% | not measured | 61.0%"
    assert f"| choreographed, serial | 200 | {measured} | {lacking} |\n" in made
    assert "- Baseline, parallel: not asked for.\n" in made
    assert not re.search(r"\n\n\n|[^|\n]\n\|[^\n]*\|\n\| ---", made), "an empty line before each table, and no more"


# -- older files, and effects -----------------------------------------------------------------------------------


def committed() -> PaperFound:
    return PaperFound.model_validate_json((DOCS / "results" / "paper.json").read_bytes())


def test_rows_of_an_older_file_stand_where_the_tables_have_them_now() -> None:
    """Rows are matched by what was played, not by label: MADpar's solvers had names unless the label said otherwise."""
    before = {row.label: row for table in committed().tables if table.name == "4" for row in table.rows}
    if "MADpar without names, baseline" not in before:
        pytest.skip("the file is one of today")
    tables = {table.name: table for table in aligned(committed()).tables}
    after = {row.label: row for row in tables["4"].rows}
    renamed = {
        "MADpar without names, baseline": "MADpar, baseline",
        "MADpar without names, choreographed": "MADpar, choreographed",
        "MADpar, baseline": "MADpar with names, baseline",
        "MADpar, choreographed": "MADpar with names, choreographed",
    }
    for old, new in renamed.items():
        assert after[new].scores["correct"].mean == before[old].scores["correct"].mean
    assert after["MADpar, choreographed"].against == "MADpar, baseline"
    assert after["MADpar, choreographed, tuned"].left_out == NOT_MEASURED
    assert after["MADpar, baseline"].scores["correct"].paper == 0.646
    assert after["MADpar with names, baseline"].scores["correct"].paper is None
    assert any("MADpar, choreographed, tuned was measured beside MADpar with names" in n for n in tables["4"].notes)
    assert [row.label for row in tables["6"].rows if row.left_out is None] == [
        row.label for row in tables["4"].rows if row.left_out is None and row.label in QWEN_8B
    ]


def test_what_was_not_measured_is_said_with_the_command_that_measures_it() -> None:
    values = {label: value for label, value in ALL.items() if label != "choreographed, serial"}
    made = found(values)
    (table,) = made.tables
    rows = tuple(row for row in table.rows if row.label != "choreographed, serial")
    shown = grids(made.model_copy(update={"tables": (table.model_copy(update={"rows": rows}),)}))[0]
    (row,) = (row for row in shown.rows if row[0] == "choreographed, serial")
    assert row[2:4] == ("not measured", "0.4%")
    (note,) = (note for note in shown.notes if note.startswith("not measured"))
    assert "`agentcho paper -n 200 --table 1` measures it: choreographed, serial; first right; last right" in note


@pytest.mark.parametrize("name", [table.name for table in TABLES])
def test_every_interval_that_the_paper_prints_is_shown_measured_or_not(name: Any) -> None:
    """Here for a file that has no rows of the table."""
    (planned,) = (table for table in TABLES if table.name == name)
    empty = TableFound(name=name, title=planned.title, scores=planned.scores, binary=planned.shares, rows=(), notes=())
    cells = {
        cell for grid in grids(committed().model_copy(update={"tables": (empty,)})) for row in grid.rows for cell in row
    }
    say = "{:+.1%}".format if planned.scores[0] in planned.shares else "{:+.3f}".format
    for figures in planned.figures.values():
        for scores in figures.values():
            for own in scores.values():
                if own.low is not None and own.high is not None:
                    assert any(
                        cell.endswith(f" ({say(own.low)} to {say(own.high)})".replace("-0.0%", "-0.02%"))
                        for cell in cells
                    )


def test_workflows_that_the_paper_has_timed_stand_in_the_table_of_times_measured_or_not() -> None:
    (times,) = (grid for grid in grids(committed()) if grid.title.startswith("Table 5"))
    told = {(row[0], row[5], row[8]) for row in times.rows if row[1] == "choreographed:audit"}
    assert {
        ("debate", "2 (1.94-2.07)", "1.036 (1.028-1.045)"),
        ("tree-of-thoughts", "3.5 (3.26-3.82)", "1.031 (1.026-1.036)"),
        ("parallel-debate", "6.2 (5.6-6.8)", "1.027 (1.023-1.032)"),
    } <= told
    of_times = [each for each in effects(aligned(committed())) if each.table == "Table 5"]
    assert len(of_times) == 6


def test_p_values_of_rows_that_are_still_there_are_corrected_over_these() -> None:
    for table in aligned(committed()).tables:
        for name in table.scores:
            tested = [row.scores[name].difference for row in table.rows if name in row.scores]
            there = [each for each in tested if each is not None]
            assert [each.holm for each in there] == pytest.approx(holm([each.p for each in there]))


@pytest.mark.parametrize(
    ("paper", "ours", "told"),
    [
        (-1, -1, "reproduced"),
        (-1, 1, "reversed"),
        (-1, 0, "null"),
        (0, 0, "no difference in both"),
        (0, -1, "ours alone"),
    ],
)
def test_what_follows_from_both_signs(paper: Any, ours: Any, told: str) -> None:
    assert verdict(paper, ours) == told


def test_a_score_without_room_is_at_its_ceiling_or_floor() -> None:
    assert bounded(0.96, 0.95, paper=0.6) == "at ceiling"
    assert bounded(0.96, 0.94, paper=0.6) == ""
    assert bounded(0.29, 0.1, paper=0.6) == "at floor"
    assert bounded(0.31, 0.1, paper=0.6) == ""


def told_of(values: dict[str, float]) -> dict[str, tuple[str, str]]:
    return {each.row: (each.verdict, each.bound) for each in effects(aligned(found(values)))}


def test_each_row_that_the_paper_has_is_judged_by_the_intervals_of_both() -> None:
    """The measured intervals extend 2 points to both sides."""
    assert told_of(ALL) == {
        "choreographed, serial": ("reproduced", ""),
        "choreographed, parallel": ("reproduced", ""),
        "choreographed, parallel, tuned": ("reversed", ""),
    }
    ceiling = dict.fromkeys(ALL, 0.97)
    assert set(told_of(ceiling).values()) == {("null", "at ceiling")}
    floor = told_of(dict.fromkeys(ALL, 0.2) | {"choreographed, serial": 0.1})
    assert floor["choreographed, serial"] == ("reproduced", "at floor")
    lacking = {label: value for label, value in ALL.items() if label != "choreographed, serial"}
    assert told_of(lacking)["choreographed, serial"] == ("not measured", "")


def test_effects_are_summed_up_by_verdict_and_bound() -> None:
    told = effects(aligned(found(dict.fromkeys(ALL, 0.97))))
    assert summary(told) == "3 effects: 3 null (3 of them at ceiling)"
    assert "tests the paper's 3 effects: 3 null (3 of them at ceiling)" in text(
        {"paper.json": found(dict.fromkeys(ALL, 0.97))}
    )


def test_the_papers_signs_are_those_of_its_text() -> None:
    """Reuse lowers scores, tuning restores them; MADpar stays lower; Bob's predictions change only within chance."""
    signs = {(t.name, row.label): expected(t, row) for t in TABLES if t.name in SCORES for row in t.rows}
    assert signs["4", "MADpar, choreographed, tuned"] == -1
    assert signs["4", "ToT, choreographed, tuned"] == signs["4", "MADiter, choreographed, tuned"] == 0
    assert signs["3", "always defect, choreographed"] == -1
    assert signs["3", "always defect, choreographed, tuned"] == 0
    assert signs["f8", "always defect, choreographed, system prompt alone"] == -1
    assert {sign for (name, _), sign in signs.items() if name == "7" and sign is not None} == {0}
    assert signs["4", "MADpar with names, choreographed"] is None


def test_wins_stand_beside_the_papers() -> None:
    first = found(ALL).tables[0]
    stories = tuple(row.model_copy(update={"scenario": "branch-solve-merge"}) for row in first.rows)
    told = Preference(games=4, wins=1, losses=2, ties=1, share=0.3, span=Interval(low=0, high=1, method="exact"), p=1)
    rows = tuple(
        row.model_copy(update={"preferred": told}) if row.label == "choreographed, serial" else row for row in stories
    )
    table = first.model_copy(update={"name": "2", "rows": rows})
    (shown,) = (
        grid
        for grid in grids(found(ALL).model_copy(update={"tables": (table,)}))
        if grid.title == "Table 2, head to head with the baseline"
    )
    by_label = {row[0]: row[1:] for row in shown.rows}
    assert by_label["choreographed, serial"][:5] == (
        "4",
        "50.0%",
        "58.0% (44.0% to 77.0%)",
        "25.0%",
        "8.0% (2.0% to 16.0%)",
    )
    assert by_label["baseline, serial, tuned"][1:3] == ("not judged", "32.0% (20.0% to 46.0%)")


def test_a_second_file_stands_behind_the_first_with_its_command() -> None:
    second = found(ALL, games=60)
    made = text({"paper.json": found(ALL), "paper-more.json": second})
    assert "- `docs/results/paper-more.json` tests" in made
    assert "## Table 1: MultiQA, two questions and one answer to both, 60 games a row\n" in made
    assert "#which-of-the-papers-effects-are-here-60-games-a-row" in made
    assert "so no seconds were kept" in made


@pytest.mark.skipif(not (DOCS / "results" / "paper.json").exists(), reason="there is no result file")
def test_the_page_is_that_of_its_file() -> None:
    assert page(DOCS / "results") == without_age((DOCS / "paper.md").read_text()), "run python -m tools.pages.paper"


def test_the_picture_of_effects_has_both_differences_and_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **options: drawn.append(figure))
    one = Effect("Table 1", "row", "all right", -0.5, -0.25, "reproduced", "at floor")
    times = Effect("Table 5", "row", "first token", 2.0, 1.5, "reproduced")
    told = [one, one._replace(ours=None, verdict="not measured"), times]
    assert differences(told) == [one], "neither what was not measured, nor ratios"
    plot_effects([one], Path("x.png"))
    (axis,) = drawn[0].axes
    points: list[Any] = [line.get_xdata() for line in axis.lines[:2]]
    assert [list(each) for each in points] == [[-50.0], [-25.0]]
    (verdicts,) = axis.child_axes
    assert [label.get_text() for label in verdicts.get_yticklabels()] == ["reproduced, at floor"]


def test_every_file_of_the_paper_has_its_picture_on_the_page() -> None:
    told = page(DOCS / "results")
    for file in sorted((DOCS / "results").glob("paper*.json")):
        drawn = bool(differences(effects(aligned(PaperFound.model_validate_json(file.read_bytes())))))
        assert drawn is (file.stem != "paper-times")
        assert told.count(f"](paper/{file.stem}.png)\n") == drawn
        assert (DOCS / f"paper/{file.stem}.png").is_file() is drawn
