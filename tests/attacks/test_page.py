"""The result as terminal tables, as a file, and as a section of the page on leaks, if there is a file."""

from __future__ import annotations

from pathlib import Path

from agentcho.display.text_table import plain
from agentcho.lab.display.leaks import sheets
from agentcho.lab.leaks.judged import claims, judge
from agentcho.lab.leaks.result import Cost, LeaksResult, Outcome, Secrets, read_leaks
from agentcho.lab.stats import spread
from tools.pages.leakage import page

from .test_judged import ALL, NONE, outcome

LACKING = Outcome(kind="codes", way="author", attack="asked", unavailable="nobody was there")


def result() -> LeaksResult:
    rows = judge([outcome("author", ALL), LACKING, outcome("audience", NONE), outcome("text", NONE)], 1)
    of = Secrets(kind="codes", size=10_000, entropy=13.29, symbols=4, options=10, lengths=1, sentences=1)
    cost = Cost(way="author", workflow="dilemma-1", seconds=(0.02, 0.03), spread=spread([0.02, 0.03]))
    asked = {"seed": 1, "n": 800, "sentence": "forced", "earlier": 0, "candidates": 2048, "templates": 20}
    where = {"model": "m", "dtype": "float32", "device": "cpu", "digest": "sha256 1", "command": "agentcho bench leaks"}
    machine = {"machine": "x", "torch": "2", "commit": "c" * 40}
    found = {"secrets": (of,), "rows": rows, "claims": claims(rows), "costs": (cost,)}
    return LeaksResult.model_validate(asked | where | found | {"machine": machine})


def test_a_file_is_what_was_written(tmp_path: Path) -> None:
    file = tmp_path / "leaks.json"
    file.write_text(result().model_dump_json())
    assert read_leaks(file) == result()


def test_the_tables_say_what_was_found_and_what_was_not_tried() -> None:
    text = "\n".join(map(plain, sheets(result())))
    lines = [line.split() for line in text.splitlines()]
    assert next(line for line in lines if line[:2] == ["author", "linear"])[2] == "200/200"
    assert next(line for line in lines if line[:2] == ["author", "asked"])[-1] == "inconclusive"
    assert any(line[-5:] == ["no", "more", "than", "the", "text"] for line in lines if line[:1] == ["audience"])
    assert "25.0" in text, "milliseconds"
    assert "LCGuard" not in text


def test_the_page_has_a_section_where_there_is_a_file_and_is_as_it_was_where_there_is_none(tmp_path: Path) -> None:
    without = page(tmp_path)
    assert "What a public sentence gives away" not in without
    (tmp_path / "leaks.json").write_text(result().model_dump_json())
    made = page(tmp_path)
    assert "| author | linear | 200 of 200 (98% to 100%) |" in made
    assert "| author | asked | | | | | | | inconclusive: not tried: nobody was there |" in made
    assert "- **audience: no more than the text.**" in made
    assert "These words are forced" in made
    begin = made.index("\n## What a public sentence")
    section = made[begin:].split("\n## ")[1]
    assert "\n\n\n" not in made[begin:]
    assert made.replace("\n## " + section, "").split() == without.split()


def test_of_the_models_own_words_it_is_said_that_these_may_tell(tmp_path: Path) -> None:
    (tmp_path / "leaks-natural.json").write_text(result().model_copy(update={"sentence": "natural"}).model_dump_json())
    made = page(tmp_path)
    assert "## What a public sentence gives away, in the model's own words\n" in made
    assert "### Codes, in the model's own words: 4 symbols" in made
    assert "its words may tell the secret by themselves" in made
    assert "Codes: 1 different sentences of 800." in made
    assert "These words are forced" not in made


def test_a_run_after_earlier_sentences_has_a_section_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "leaks.json").write_text(result().model_dump_json())
    alone = page(tmp_path)
    later = result().model_copy(update={"earlier": 3})
    (tmp_path / "leaks-earlier.json").write_text(later.model_dump_json())
    both = page(tmp_path)
    headings = [line for line in both.splitlines() if line.startswith(("## What a public", "### Codes"))]
    assert [line.split(":")[0] for line in headings] == [
        "## What a public sentence gives away",
        "### Codes",
        "## What a public sentence gives away, after 3 others",
        "### Codes, after 3 others",
    ]
    assert both.count("which a repair may learn from.") == 1
    assert "may learn from" not in alone
