"""What tuning brings back of a table, in words; and the page on the paper's tables is made from its file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentcho.audit.measurement import Interval
from agentcho.lab.compare.comparison import Difference, Mean, Preference
from agentcho.lab.paper.found import PaperFound, RowFound, Score, TableFound
from agentcho.lab.paper.tables import table_named
from agentcho.lab.paper.wording import BACK, NO_JUDGE, grids
from tools.pages.marks import without_age
from tools.pages.paper import page, text

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
    """Within 2 points there may be none."""
    told = [row[-1] for row in back(ALL | {"choreographed, serial": reused})]
    assert told == ["no loss is shown", "112%"]


@pytest.mark.parametrize("lacking", ["baseline, serial", "choreographed, serial", "choreographed, serial, tuned"])
def test_of_a_row_that_was_left_out_nothing_is_said(lacking: str) -> None:
    values = {label: value for label, value in ALL.items() if label != lacking}
    assert "choreographed, serial, tuned" not in {row[0] for row in back(values)}


def test_nothing_is_said_of_rows_without_a_game() -> None:
    assert back(ALL, games=0) == ()


def test_of_a_tuned_row_that_has_no_fellow_nothing_is_said() -> None:
    """In a file that somebody else wrote, say."""
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


@pytest.mark.skipif(not (DOCS / "results" / "paper.json").exists(), reason="there is no result file")
def test_the_page_is_that_of_its_file() -> None:
    assert page(DOCS / "results") == without_age((DOCS / "paper.md").read_text()), "run python -m tools.pages.paper"
