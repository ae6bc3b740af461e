"""Tasks from files: agentcho's own format and published ones, and every way in which a file can be invalid."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentcho.errors import ExtraMissing, TaskError
from agentcho.tasks import Concepts, Problem, Task, TaskSet, task_set

OWN = {"question": "How many legs has a fly?", "answer": "6", "check": "number"}


def jsonl(path: Path, *rows: Any) -> str:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return str(path)


def all_of(tasks: TaskSet) -> list[Task]:
    assert tasks.size is not None
    return [tasks[number] for number in range(tasks.size)]


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "t.jsonl", OWN, "", {"id": "b", "question": "?", "answers": ["x", "y"]})
    tasks = task_set(path, Problem)
    assert all_of(tasks) == [
        Problem(id="1", question=OWN["question"], answers=("6",), check="number"),
        Problem(id="b", question="?", answers=("x", "y")),
    ]
    changed = task_set(jsonl(tmp_path / "u.jsonl", OWN, {"id": "b", "question": "?", "answers": ["x", "z"]}), Problem)
    assert changed.digest != tasks.digest
    with pytest.raises(IndexError):
        tasks[2]


def test_a_list_and_concepts(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{"words": ["dog", "run"]}, {"id": "x", "words": ["sun"]}]))
    words = [task.words for task in all_of(task_set(str(path), Concepts)) if isinstance(task, Concepts)]
    assert words == [("dog", "run"), ("sun",)]


HALF = r"So \boxed{1}, no: \boxed{\frac{3}{2}}."
PUBLISHED: list[tuple[str, list[dict[str, Any]], list[Task]]] = [
    (
        "math",
        [
            {"problem": "Half of 3?", "level": "Level 1", "type": "Algebra", "solution": HALF},
            {"problem": "1+1?", "solution": "two", "answer": "2", "unique_id": "test/1.json"},
            {"problem": "2+2?", "solution": r"It is $\boxed 4$."},
        ],
        [
            Problem(id="1", question="Half of 3?", answers=(r"\frac{3}{2}",), check="math"),
            Problem(id="test/1.json", question="1+1?", answers=("2",), check="math"),
            Problem(id="3", question="2+2?", answers=("4",), check="math"),
        ],
    ),
    (
        "gsm8k",
        [{"question": "How much?", "answer": "It is <<2*600=1200>>1200.\n#### 1,200"}],
        [Problem(id="1", question="How much?", answers=("1,200",), check="number")],
    ),
    (
        "triviaqa",
        [
            {
                "question": "Who?",
                "question_id": "tc_2",
                "answer": {"value": "Sun", "aliases": ["Sun", "Sol"], "normalized_aliases": ["sol", "sun"]},
            },
            {"Question": "What?", "QuestionId": "qz_1", "Answer": {"Value": "Tea", "Aliases": ["Chai"]}},
        ],
        [
            Problem(id="tc_2", question="Who?", answers=("Sun", "Sol", "sol", "sun")),
            Problem(id="qz_1", question="What?", answers=("Tea", "Chai")),
        ],
    ),
    (
        "commongen",
        [
            {"concept_set_idx": 0, "concepts": ["ski", "skier"], "target": "A skier skis."},
            {"concept_set_idx": 0, "concepts": ["ski", "skier"], "target": "Skiers ski."},
            {"concept_set": "dog_N#run_V", "scene": ["A dog runs."]},
        ],
        [Concepts(id="0", words=("ski", "skier")), Concepts(id="3", words=("dog", "run"))],
    ),
]


@pytest.mark.parametrize(("name", "rows", "tasks"), PUBLISHED, ids=[name for name, _, _ in PUBLISHED])
def test_published_formats(tmp_path: Path, name: str, rows: list[dict[str, Any]], tasks: list[Task]) -> None:
    path = jsonl(tmp_path / f"{name}.jsonl", *rows)
    assert all_of(task_set(f"{name}:{path}", type(tasks[0]))) == tasks


def test_the_published_file_of_triviaqa_holds_its_questions_under_data(tmp_path: Path) -> None:
    path = tmp_path / "verified.json"
    path.write_text(json.dumps({"Data": PUBLISHED[2][1], "Version": 1.0}))
    assert all_of(task_set(f"triviaqa:{path}", Problem)) == PUBLISHED[2][2]


def test_a_question_of_triviaqa_that_is_listed_twice_is_one_with_all_answers(tmp_path: Path) -> None:
    def row(question: str, *aliases: str) -> dict[str, Any]:
        return {"question_id": "tc_2", "question": question, "answer": {"value": "Sun", "normalized_aliases": aliases}}

    twice = jsonl(tmp_path / "t.jsonl", row("Who?", "a b", "c"), row("Who?", "c", "a b"))
    assert all_of(task_set(f"triviaqa:{twice}", Problem)) == [
        Problem(id="tc_2", question="Who?", answers=("Sun", "a b", "c"))
    ]
    more = jsonl(tmp_path / "u.jsonl", row("Who?", "sol"), row("Who?", "helios"))
    assert all_of(task_set(f"triviaqa:{more}", Problem)) == [
        Problem(id="tc_2", question="Who?", answers=("Sun", "helios", "sol"))
    ]
    other = jsonl(tmp_path / "v.jsonl", row("Who?", "sol"), row("What?", "sol"))
    with pytest.raises(TaskError, match=r"v\.jsonl:2: repeats the id 'tc_2' of entry 1"):
        task_set(f"triviaqa:{other}", Problem)


def test_an_alias_of_triviaqa_without_a_word_is_left_out(tmp_path: Path) -> None:
    answer = {"value": "And", "aliases": ["&", "Ampersand", ""]}
    path = jsonl(tmp_path / "t.jsonl", {"question_id": "qz_1", "question": "What?", "answer": answer})
    assert all_of(task_set(f"triviaqa:{path}", Problem)) == [
        Problem(id="qz_1", question="What?", answers=("And", "Ampersand"))
    ]


@pytest.mark.parametrize(("name", "rows", "tasks"), PUBLISHED[:2], ids=["math", "gsm8k"])
def test_a_dataset_in_a_folder(tmp_path: Path, name: str, rows: list[dict[str, Any]], tasks: list[Task]) -> None:
    pytest.importorskip("datasets")
    folder = tmp_path / "set"
    folder.mkdir()
    for split in ("test", "train"):
        jsonl(folder / f"{split}.jsonl", *rows)
    assert all_of(task_set(f"{name}:{folder}", Problem)) == tasks
    assert all_of(task_set(f"{name}:{folder}@train", Problem)) == tasks
    with pytest.raises(TaskError, match="cannot be loaded"):
        task_set(f"{name}:{folder}@nowhere", Problem)


def test_the_published_id_keeps_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None, str]] = []

    def load(id: str, config: str | None, split: str) -> list[dict[str, Any]]:
        asked.append((id, config, split))
        return PUBLISHED[1][1]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    for rest in ("", "openai/gsm8k@train", "someone/theirs"):
        task_set(f"gsm8k:{rest}" if rest else "gsm8k", Problem)
    assert asked == [
        ("openai/gsm8k", "main", "test"),
        ("openai/gsm8k", "main", "train"),
        ("someone/theirs", None, "test"),
    ]


@pytest.mark.parametrize(
    ("words", "told"), [(["Dog", "run", "dog"], "'dog' is listed twice"), (["-"], "'-' is not a word")]
)
def test_words_are_words_and_different(tmp_path: Path, words: list[str], told: str) -> None:
    with pytest.raises(TaskError, match=rf"t\.jsonl:1: words: .*{told}"):
        task_set(jsonl(tmp_path / "t.jsonl", {"words": words}), Concepts)


def test_without_the_library_the_hub_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'agentcho\[datasets\]'"):
        task_set("gsm8k", Problem)


BROKEN: list[tuple[str, list[Any], str]] = [
    ("", [OWN, "", '{"question": '], r"t\.jsonl:3: is not JSON"),
    ("", [OWN, "[1]"], r"t\.jsonl:2: is list, not a JSON object"),
    ("", [OWN, {"answer": "6"}], r"t\.jsonl:2: has no field 'question'$"),
    ("", [{"question": "?"}], r"t\.jsonl:1: has no field 'answer'"),
    ("", [OWN | {"colour": "red"}], r"t\.jsonl:1: there is no field 'colour'$"),
    ("", [OWN | {"check": "mind"}], r"t\.jsonl:1: check: "),
    ("", [OWN, OWN | {"answer": "six"}], r"t\.jsonl:2: the answer 'six' does not contain a number"),
    ("", [OWN | {"answer": None}], r"t\.jsonl:1: answer: Input should be a valid string$"),
    ("", [OWN | {"answers": ["7", None]}], r"t\.jsonl:1: answers, item 3: Input should be a valid string$"),
    ("", [OWN | {"queston": "?"}], r"t\.jsonl:1: there is no field 'queston'; did you mean 'question'\?$"),
    ("", [], r"t\.jsonl: is empty; give at least one task"),
    ("", ["", "  "], r"t\.jsonl: is empty"),
    ("", [{"id": "a", **OWN}, {"id": "a", **OWN, "answer": "8"}], r"t\.jsonl:2: repeats the id 'a' of entry 1"),
    ("gsm8k:", [{"question": "?", "answer": "6"}], r"t\.jsonl:1: its answer does not end in '#### NUMBER'"),
    ("gsm8k:", [{"question": " ", "answer": "#### 6"}], r"t\.jsonl:1: has no text in its field 'question'"),
    ("math:", [{"problem": "?", "solution": "6"}], r"t\.jsonl:1: its solution has no \\boxed"),
    ("math:", [{"problem": "?", "solution": r"\boxed{6"}], r"t\.jsonl:1: the \\boxed\{ .* is never closed"),
    ("triviaqa:", [{"question": "?", "answer": "6"}], r"t\.jsonl:1: has no field 'answer' with 'value'"),
    ("triviaqa:", [{"question": "?", "answer": {"aliases": []}}], r"t\.jsonl:1: its answer has neither"),
    ("triviaqa:", [{"question": "?", "answer": {"value": "&"}}], r"t\.jsonl:1: its answer has neither"),
    (
        "triviaqa:",
        [{"question": "?", "answer": {"aliases": ["a", 8]}}],
        r"t\.jsonl:1: its answer has 8, which is not a text",
    ),
    (
        "triviaqa:",
        [{"question": "?", "answer": {"value": "a", "aliases": 8}}],
        r"t\.jsonl:1: its field 'aliases' is not a",
    ),
    ("", [{"question": "?", "answer": "a", "answers": 8}], r"t\.jsonl:1: its field 'answers' is not a list"),
]


@pytest.mark.parametrize(("prefix", "rows", "told"), BROKEN)
def test_what_is_broken_is_named_with_file_and_line(tmp_path: Path, prefix: str, rows: list[Any], told: str) -> None:
    path = jsonl(tmp_path / "t.jsonl", *rows)
    with pytest.raises(TaskError, match=told):
        task_set(f"{prefix}{path}", Problem)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"none\.jsonl: cannot be read: No such file"):
        task_set(str(tmp_path / "none.jsonl"), Problem)
    (tmp_path / "bytes.jsonl").write_bytes(b'{"question": "\xff"}')
    with pytest.raises(TaskError, match="is not UTF-8 text: byte 14"):
        task_set(str(tmp_path / "bytes.jsonl"), Problem)
    (tmp_path / "odd.json").write_text('{"rows": 3}')
    with pytest.raises(TaskError, match="holds neither a list nor"):
        task_set(str(tmp_path / "odd.json"), Problem)
    (tmp_path / "torn.json").write_text('[{"question": "?"},\n{"quest')
    with pytest.raises(TaskError, match=r"torn\.json:2: is not JSON"):
        task_set(str(tmp_path / "torn.json"), Problem)
    assert jsonl(tmp_path / "c.jsonl", {"concepts": []})
    with pytest.raises(TaskError, match="has neither 'concepts' nor 'concept_set'"):
        task_set(f"commongen:{tmp_path / 'c.jsonl'}", Concepts)


def test_a_field_of_more_answers_may_be_null(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "t.jsonl", {"id": "a", "question": "?", "answer": "x", "answers": None})
    assert all_of(task_set(path, Problem)) == [Problem(id="a", question="?", answers=("x",))]
