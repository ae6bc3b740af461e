"""`agentcho paper` on the fake engine: the paper's rows and columns, no repeated work, nothing started past a budget,
validated files, published datasets in their own formats."""

from __future__ import annotations

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentcho.agent import Agent
from agentcho.lab.paper.found import PaperFound, digest_of
from agentcho.lab.paper.phases import Phases
from agentcho.lab.paper.tables import TABLES

from .conftest import Command, one_line

FAKE = ("paper", "--model", "fake", "--quick", "--max-tokens", "8", "-n", "3")


def exported(file: Path = Path("p.json")) -> PaperFound:
    return PaperFound.model_validate_json(file.read_text())


def test_a_table_has_the_papers_rows_and_columns_beside_its_figures(agentcho: Command, here: Path) -> None:
    ran = agentcho(*FAKE, "--table", "1", "--export", "p.json")
    assert (ran.code, ran.err) == (0, "")
    for words in ("Table 1: MultiQA", "baseline, parallel", "choreographed, serial", "56.4%", "0.4%", "game by game"):
        assert words in ran.out
    assert "needs training: left out by --quick" in ran.out
    (table,) = exported().tables
    assert [row.label for row in table.rows] == [row.label for row in TABLES[0].rows]
    played = [row for row in table.rows if row.left_out is None]
    assert len(played) == 4
    assert all(set(row.scores) == {"all right", "first right", "last right"} for row in played)
    assert {row.tasks for row in played} == {"facts:half=2"}
    assert [row.scores["all right"].paper for row in played] == [0.564, None, 0.004, 0.004]
    assert all(row.scores["all right"].difference is not None for row in played[1:])
    assert [phase.name for phase in exported().phases] == [f"table 1: {row.label}" for row in played]


def test_what_differs_from_the_paper_is_in_the_command_that_finds_it_again(agentcho: Command, here: Path) -> None:
    """By default nothing differs, and the file says that each table is sampled as in the paper."""
    asked = (*FAKE, "--table", "1", "--export", "p.json")
    assert agentcho(*asked).code == 0
    assert exported().top_p is None
    assert not {"--top-p", "--traces", "--rate", "--batch"} & set(exported().command.split())
    given = ("--top-p", "0.9", "--traces", "5", "--rate", "2e-05", "--batch", "1")
    assert agentcho(*asked, *given).code == 0
    assert exported().top_p == 0.9
    assert " ".join(given) in exported().command


@pytest.mark.slow
def test_all_tables_are_played_and_the_file_is_whole(agentcho: Command, here: Path) -> None:
    ran = agentcho(*FAKE, "-n", "1", "--export", "p.json", "--html", "p.html")
    assert ran.code == 0, ran.err
    found = exported()
    assert [table.name for table in found.tables] == ["1", "2", "3", "4", "6", "7", "f8"]
    assert {row.left_out for table in found.tables for row in table.rows if row.adapter == "none"} == {None}
    assert {times.left_out for times in found.times} == {"the fake engine has no weights to train and no times"}
    assert {each.scenario: (each.compared, each.trained) for each in found.sets}["multi-qa"] == (
        "facts:half=2",
        "facts:half=1",
    )
    named = [phase.name for phase in found.phases if not phase.name.startswith("tasks")]
    assert len(named) < sum(row.adapter == "none" for table in found.tables for row in table.rows)
    loaded = {each.scenario: each.loaded for each in found.sets if each.loaded is not None}
    assert {name: each.loader for name, each in loaded.items()}.items() >= {
        ("multi-qa", "triviaqa"),
        ("branch-solve-merge", "commongen"),
        ("debate", "math"),
    }
    played = [each for each in loaded.values() if each.left_out is None]
    assert len(played) == len(loaded if find_spec("math_verify") else LOADERS[:2])
    assert {(each.games, each.same, each.through == each.without) for each in played} == {(1, 1, True)}
    assert "through its loader: the same words in 1 of 1 game" in ran.out
    page = (here / "p.html").read_text()
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=", page)
    assert "Figure 8" in page
    assert agentcho("paper", "--check", "p.json").code == 0


@pytest.mark.slow
def test_the_words_of_a_task_are_thirty(agentcho: Command, here: Path) -> None:
    agentcho(*FAKE, "--table", "2", "--export", "p.json")
    assert {row.tasks for row in exported().tables[0].rows if row.left_out is None} == {"concepts:size=30"}


@pytest.mark.slow
def test_nothing_is_played_twice_and_more_games_are_added(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (*FAKE, "--table", "f8", "--export", "p.json")
    assert agentcho(*asked).code == 0
    before = exported()
    said: list[str] = []
    say = Agent.say

    async def counted(self: Agent, *words: Any, **options: Any) -> Any:
        said.append(self.name)
        return await say(self, *words, **options)

    monkeypatch.setattr(Agent, "say", counted)
    assert agentcho(*asked).code == 0
    assert not said
    assert exported().tables == before.tables
    assert agentcho(*asked, "-n", "4").code == 0
    assert said
    assert {row.games for table in exported().tables for row in table.rows} == {4}


@pytest.mark.slow
def test_a_budget_that_is_used_up_leaves_the_rest_for_the_same_command(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    begin = Phases.begin

    def second(self: Phases, name: str) -> Any:
        begun.append(name)
        self._budget = None if len(begun) < 2 else 0.0
        return begin(self, name)

    asked = (*FAKE, "--table", "1", "--budget", "1h", "--export", "p.json")
    with monkeypatch.context() as patch:
        patch.setattr(Phases, "begin", second)
        ran = agentcho(*asked)
    assert ran.code == 1
    found = exported()
    assert found.left == tuple(f"table 1: {label}" for label in ("baseline, parallel", *CHOREOGRAPHED))
    assert "left over by --budget" in ran.out
    assert agentcho("paper", "--check", "p.json").code == 0
    assert agentcho(*asked).code == 0
    assert not exported().left
    assert exported().phases[0] == found.phases[0]


CHOREOGRAPHED = ("choreographed, serial", "choreographed, parallel")


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_over(agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say, count = Agent.say, list[int]()

    async def impatient(self: Agent, *words: Any, **options: Any) -> Any:
        count.append(1)
        if len(count) > 5:
            raise KeyboardInterrupt
        return await say(self, *words, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Agent, "say", impatient)
        ran = agentcho(*FAKE, "--table", "1", "--at-once", "1")
    assert ran.code == 130
    assert "repeat the command to continue" in ran.err
    assert agentcho(*FAKE, "--table", "1").code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--table", "9"), "'9' is none of 1, 2, 3, 4, 5, 6, 7, f4, f8, tasks"),
        (("--budget", "soon"), "budget 'soon' is not a time; give a number above 0 and its unit"),
        (("--judge", "understudy"), "understudy cannot judge"),
        (("--rate", "0"), "greater than 0"),
        (("--top-p", "2"), "less than or equal to 1"),
        (("--tasks", "poems=x.jsonl"), "'poems' is none of multi-qa"),
        (("--tasks", "multi-qa=x.jsonl"), "x.jsonl: cannot be read"),
        (("--export", "no/p.json"), "no/p.json cannot be written"),
        (("--check", "nothing.json"), "nothing.json cannot be read"),
    ],
)
def test_what_is_wrong_is_said_before_a_model_is_loaded(
    agentcho: Command, here: Path, no_model: None, words: tuple[str, ...], told: str
) -> None:
    ran = agentcho(*FAKE, *words)
    assert ran.code == 2
    assert told in ran.err
    assert "Traceback" not in ran.err


# -- file validation -----------------------------------------------------------------------------------------


@pytest.fixture
def whole(agentcho: Command, here: Path) -> dict[str, Any]:
    """The file of the first table; played once for all its tests."""
    if not WHOLE:
        assert agentcho(*FAKE, "--table", "1", "--export", "p.json").code == 0
        WHOLE.append((here / "p.json").read_text())
    found: dict[str, Any] = json.loads(WHOLE[0])
    return found


WHOLE: list[str] = []


def changed(found: dict[str, Any], place: str, value: Any, sign: bool = True) -> str:
    at: Any = found
    *parents, last = [int(word) if word.isdecimal() else word for word in place.split("/")]
    for name in parents:
        at = at[name]
    at[last] = value
    if sign:
        found["digest"] = digest_of(found)
    return json.dumps(found)


FIRST, SECOND = "tables/0/rows/0", "tables/0/rows/2/scores/all right"


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (f"{FIRST}/scores/all right/mean/value", 0.5, "tables.0.rows.0.scores.all right.mean"),
        (f"{FIRST}/scores/all right/mean/games", 4, "mean.games: 4 of 3 games"),
        (f"{FIRST}/scores/all right/mean/span/high", 0.999, "is not the exact interval of"),
        (f"{FIRST}/scores/all right/paper", 0.9, "scores.all right.paper: 0.9, and the paper prints 0.564"),
        ("tables/0/rows/1/scores/all right/paper", 0.5, "scores.all right.paper: 0.5, and the paper prints none"),
        (f"{FIRST}/games", 200, "tables.0.rows.0.games: 200, and 3 were asked for"),
        (f"{FIRST}/without", 9, "tables.0.rows.0.without: 9 of 3 games"),
        (
            f"{FIRST}/label",
            "mine",
            "tables.0.rows: are not those of Table 1: they lack 'baseline, serial', and have 'mine'",
        ),
        (f"{FIRST}/options", {"layout": "parallel"}, "is another row than this table's 'baseline, serial'"),
        (f"{FIRST}/left_out", "no", "tables.0.rows.0: is left out and has scores"),
        (f"{SECOND}/difference/p", 0.001, "difference.p: is not that of McNemar's exact test"),
        (f"{SECOND}/difference/holm", 0.2, "p and its correction are not in order"),
        (f"{SECOND}/difference/gained", 3, "difference.value: is not (gained - lost) / games"),
        ("phases/0/seconds", -1.0, "phases.0.seconds: less than 0"),
        ("modules", "abc", "modules: is no SHA-256 in hex"),
        ("machine/commit", "", "machine.commit: is missing"),
        ("games", "many", "games: Input should be a valid integer"),
        ("colour", "red", "colour: Extra inputs are not permitted"),
    ],
)
def test_each_fault_of_a_file_is_named_with_its_place(
    agentcho: Command, here: Path, whole: dict[str, Any], place: str, value: Any, told: str
) -> None:
    (here / "p.json").write_text(changed(whole, place, value))
    ran = agentcho("paper", "--check", "p.json")
    assert ran.code == 1
    assert told in ran.err


def test_of_other_rows_the_figures_are_checked_all_the_same(
    agentcho: Command, here: Path, whole: dict[str, Any]
) -> None:
    changed(whole, f"{FIRST}/label", "mine")
    (here / "p.json").write_text(changed(whole, f"{FIRST}/scores/all right/mean/span/high", 0.999))
    told = agentcho("paper", "--check", "p.json").err
    assert f"is of agentcho {whole['machine']['agentcho']} at commit {whole['machine']['commit'][:10]}" in told
    assert "is not the exact interval of" in told


def test_a_figure_that_was_changed_is_noticed_by_the_digest(
    agentcho: Command, here: Path, whole: dict[str, Any]
) -> None:
    (here / "p.json").write_text(changed(whole, "phases/0/seconds", 1e6, sign=False))
    assert "digest: is not that of what the file holds" in agentcho("paper", "--check", "p.json").err
    (here / "p.json").write_text("{")
    assert "is no JSON" in agentcho("paper", "--check", "p.json").err


# -- published datasets --------------------------------------------------------------------------------------

TRIVIA = [
    {
        "question": f"Who was number {number}?",
        "question_id": f"tc_{number}",
        "question_source": "http://www.triviacountry.com/",
        "answer": {
            "aliases": [f"Person {number}", f"The {number}th"],
            "normalized_aliases": [f"person {number}", f"{number}th"],
            "matched_wiki_entity_name": "",
            "normalized_matched_wiki_entity_name": "",
            "normalized_value": f"person {number}",
            "type": "WikipediaEntity",
            "value": f"Person {number}",
        },
    }
    for number in range(8)
]
COMMON = [
    {
        "concept_set_idx": number,
        "concepts": [f"{name}{tail}" for name in ("dog", "tree", "run", "sun")],
        "target": "A dog.",
    }
    for number, tail in enumerate("abcdefghijklmnopqrstuvwxyzabcdefghij")
    for _ in range(2)
]
MATH = [
    {
        "problem": f"What is {number} + 1?",
        "solution": rf"It is $\boxed{{{number + 1}}}$.",
        "answer": str(number + 1),
        "subject": "Prealgebra",
        "level": 1,
        "unique_id": f"test/prealgebra/{number}.json",
    }
    for number in range(6)
]
GSM = [
    {
        "question": f"Ann has {number} apples and finds 2. How many has she?",
        "answer": f"She has <<{number}+2={number + 2}>>{number + 2}.\n#### {number + 2}",
    }
    for number in range(6)
]
LOADERS = [
    ("1", "multi-qa", "triviaqa", TRIVIA),
    ("2", "branch-solve-merge", "commongen", COMMON),
    ("4", "direct,tree-of-thoughts,debate,parallel-debate", "math", MATH),
    ("4", "direct,tree-of-thoughts,debate,parallel-debate", "gsm8k", GSM),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "workflows", "name", "rows"),
    [pytest.param(*each, id=each[2]) for each in LOADERS],
)
def test_each_published_set_is_played_from_end_to_end(
    agentcho: Command, here: Path, table: str, workflows: str, name: str, rows: list[dict[str, Any]]
) -> None:
    if name == "math":
        pytest.importorskip("math_verify")
    (here / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    given = [word for workflow in workflows.split(",") for word in ("--tasks", f"{workflow}={name}:rows.jsonl")]
    ran = agentcho(*FAKE, "--data", "published", "--table", table, *given, "--export", "p.json")
    assert ran.code == 0, ran.err
    played = [row for row in exported().tables[0].rows if row.left_out is None]
    assert len(played) > 3
    assert all(row.games == 3 and row.without == 0 and row.scores for row in played)
    told = "".join(file.read_text() for file in (here / "runs" / "paper" / "games").rglob("transcript.jsonl"))
    first = {
        "triviaqa": "Who was number 0?",
        "commongen": "suna",
        "math": "What is 0 + 1?",
        "gsm8k": "Ann has 0 apples",
    }
    assert first[name] in told
    if name == "commongen":
        (words,) = (here / "runs" / "paper" / "tasks").glob("words-*.jsonl")
        lines = [json.loads(line)["words"] for line in words.read_text().splitlines()]
        assert {len(line) for line in lines} == {30}
        assert not set(lines[0]) & set(lines[1])


def test_too_few_rows_are_one_error_before_anything_is_played(agentcho: Command, here: Path, no_model: None) -> None:
    (here / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in TRIVIA))
    given = ("--data", "published", "--table", "1", "--tasks", "multi-qa=triviaqa:rows.jsonl", "-n", "9")
    assert "the set has 8 tasks, and 9 games draw 2 each" in one_line(agentcho(*FAKE, *given))


@pytest.mark.parametrize("table", ["1", "2", "4"])
def test_a_hub_that_is_not_there_is_said_in_one_line(
    agentcho: Command, here: Path, no_model: None, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    def nowhere(*asked: Any, **more: Any) -> Any:
        raise ConnectionError("Couldn't reach the hub")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=nowhere))
    monkeypatch.setattr("agentcho.tasks.rows.require", lambda *words: None)
    told = one_line(agentcho(*FAKE, "--data", "published", "--table", table))
    assert "cannot be loaded (ConnectionError: Couldn't reach the hub)" in told
