"""Judges' picks as terminal tables, as sentences, and as a part of the page on repair."""

from __future__ import annotations

from pathlib import Path

from agentcho.display.text_table import plain
from agentcho.lab.display.judge import sheets, verdict
from agentcho.lab.judging.measured import JudgeOptions, PartialJudge, rows, target
from agentcho.lab.judging.result import Block, JudgeResult, read_judge
from tools.pages.judge import page

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "repair.md"


def result(lost: int, anew: int, way: str = "ends:0,8") -> JudgeResult:
    """Of 200 votes plain reuse loses 60, and `way` the last `lost` of them, encoding `anew` of 100 tokens anew."""
    asked = JudgeOptions.of(("votes",), (way,), 200, 1, "audit")
    kept = PartialJudge.begin(None, False, {})
    changed = {"baseline": (0, 100), "reuse": (60, 0), way: (lost, anew)}
    for number in range(20):
        at = range(number * 10, number * 10 + 10)
        margins = tuple(float(each) for each in at)
        found = {
            name: Block(picks=tuple(int(each >= 200 - many) for each in at), margins=margins, anew=share, read=100)
            for name, (many, share) in changed.items()
        }
        kept.add("votes", number, found)
    compared = rows(asked, kept)
    where = {"model": "m", "dtype": "float32", "device": "cpu", "digest": "sha256 1", "machine": {"machine": "x"}}
    how = {"command": "agentcho bench judge", "seed": 1, "leakage": "audit", "n": 200}
    return JudgeResult.model_validate(where | how | {"rows": compared, "target": target(compared)})


def test_a_file_is_what_was_written(tmp_path: Path) -> None:
    file = tmp_path / "judge.json"
    file.write_text(result(10, 20).model_dump_json())
    assert read_judge(file) == result(10, 20)


def test_the_tables_say_how_many_picks_are_the_same_and_where_others_are() -> None:
    agreement, where = ([row.strip() for row in plain(sheet).splitlines()] for sheet in sheets(result(10, 20)))
    assert next(line for line in agreement if line.startswith("ends:0,8")).split()[1:2] == ["95.0%"]
    assert next(line for line in agreement if line.startswith("reuse")).endswith("0.0%")
    changed = next(line for line in where if line.startswith("reuse")).split()
    assert changed[1:6] == ["0/50", "0/50", "10/50", "50/50", "60/200"]
    assert not any(line.startswith("baseline") for line in where)


def test_the_verdict_says_what_keeps_enough_at_which_cost() -> None:
    assert verdict(result(0, 25)).startswith("ends:0,8 keeps 99% of choices with at most 30% of tokens encoded anew")
    dear = verdict(result(0, 60))
    assert "None of the measured repairs keeps 99% of choices" in dear
    assert "is ends:0,8 (votes: 100.0% of choices with 60% of tokens)" in dear
    assert "keeps most (votes: 95.0% of choices with 20% of tokens)" in verdict(result(10, 20))
    found = result(0, 25)
    easy = found.model_copy(update={"target": found.target.model_copy(update={"hard": (), "reached": False})})
    assert verdict(easy).startswith("ends:0,8 keeps 99% of choices")
    assert "Plain reuse keeps more than 80% in every task." in verdict(easy)


def test_the_part_of_the_page_is_made_of_the_file(tmp_path: Path) -> None:
    text = "before\n\n<!-- judge -->\n\nold\n\n<!-- end of judge -->\n\nafter\n"
    assert page(tmp_path, text) == text
    (tmp_path / "judge.json").write_text(result(10, 20).model_dump_json())
    made = page(tmp_path, text)
    assert "old" not in made
    assert "| ends:0,8 | 95.0% (91.0% to 97.6%) |" in made
    assert made.startswith("before\n")
    assert page(tmp_path, made) == made


def test_the_page_on_repair_is_what_its_file_says() -> None:
    text = PAGE.read_text()
    assert page(ROOT / "docs" / "results", text) == text, "run python -m tools.pages.judge docs/results " + str(PAGE)
