"""Checking answers: as words, as a number, as mathematics."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentcho.config import RunConfig
from agentcho.errors import ExtraMissing
from agentcho.games.runs import library, runtime
from agentcho.games.runs.request import RunRequest
from agentcho.tasks import Problem
from agentcho.tasks.task import Check


def asked(check: Check, *answers: str) -> Problem:
    return Problem(id="1", question="?", answers=answers, check=check)


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("Paris", True),
        ("paris.", True),
        ("  The  PARIS!", True),
        ("I think that the answer is Paris.", True),
        ("The answer is Rome. No, the answer is Paris.", True),
        ("The answer is Paris. No, the answer is Rome.", False),
        ("Paris or Rome", False),
        ("Pari", False),
        ("", False),
        ("City of Light", True),
        ("The answer is Paris. I am sure.", True),
        ("The answer is St. Denis. I am sure.", True),
        ("The answer is St.", False),
        ("The final answer is:\n**Paris**", True),
        ("**The final answer is:**\n\nParis\nI am sure.", True),
        ("**Answer:**\n\nParis", True),
        ("The answer: Paris", True),
        ("The answer is: Paris", True),
        ("The answer is:\nRome\nParis", False),
        ("The answer is:", False),
    ],
)
def test_words_are_compared_without_case_articles_and_marks(said: str, right: bool) -> None:
    assert asked("text", "Paris", "the City of Light", "St. Denis").right(said) is right


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("1200", True),
        ("5 + 3 = 8. So it is 1,200.", True),
        ("1200.00 apples", True),
        ("The answer is 1200. I am 99% sure.", True),
        ("1200 or 12", False),
        ("120", False),
        ("-1200", False),
        ("It is 1500-1200", True),
        ("It is (-1200)", False),
        ("none", False),
        ("The answer is:\n\n1200", True),
        ("The answer is: 1200", True),
        ("The answer: 1200", True),
        ("It is \u22121200", False),
        ("It is 1500\u22121200", True),
    ],
)
def test_of_numbers_the_last_one_counts(said: str, right: bool) -> None:
    assert asked("number", "1,200").right(said) is right


@pytest.mark.parametrize(
    ("said", "right"),
    [
        (r"The answer is $\frac{1}{2}$.", True),
        ("0.5", True),
        (r"\boxed{\frac{2}{4}}", True),
        (r"$\frac{1}{3}$", False),
        ("I do not know", False),
    ],
)
def test_mathematics_is_compared_as_such(said: str, right: bool) -> None:
    assert asked("math", r"\frac{1}{2}").right(said) is right


@pytest.mark.parametrize("minus", ["-", "\u2212"])
def test_a_minus_sign_of_either_kind_belongs_to_its_number(minus: str) -> None:
    assert asked("number", "-12").right(f"The answer is {minus}12.")
    assert asked("number", f"{minus}12").right("-12")
    assert asked("number", "7").answer_in(f"It is {minus}12.") == "-12"


def test_mathematics_is_compared_in_any_thread() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(asked("math", r"\frac{1}{2}").right, "0.5").result()


@pytest.mark.parametrize(("check", "answer"), [("number", "six"), ("text", "..."), ("math", " ")])
def test_an_answer_that_compares_as_nothing_is_refused(check: Check, answer: str) -> None:
    with pytest.raises(ValueError, match="which its check needs"):
        asked(check, answer)


def test_without_its_library_mathematics_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'agentcho\[math\]'"):
        asked("math", "1").right("1")


def test_answers_are_the_same_for_a_vote_if_they_are_the_same_for_the_check() -> None:
    problem = asked("number", "7")
    assert problem.answer_in("3 + 4 = 7. The answer is 7.") == problem.answer_in("7.0") == "7"
    assert asked("text", "x").answer_in("The answer is the Sun.") == "sun"
    assert asked("text", "x").answer_in("The final answer is:\n**Paris**") == "paris"
    assert asked("number", "7").answer_in("The answer is:\n\n12\nor 13") == "12"
    half = asked("math", "0.5")
    assert half.right(half.answer_in(r"The answer is \frac{1}{2}."))
    assert len({half.answer_in(said) for said in ("The answer is 0.5.", r"It is $\frac{2}{4}$.", "1/2")}) == 1
    city = asked("text", "St. Petersburg", "Leningrad")
    assert city.right(city.answer_in("The answer is St. Petersburg. I am sure."))
    assert city.answer_in("The answer is St. Petersburg.") == city.answer_in("Leningrad")
    assert city.answer_in("The answer is St. Moritz.") == "st"


def test_a_question_without_answers_has_no_right_one() -> None:
    assert not asked("text").right("")


def test_what_a_check_needs_is_asked_for_before_a_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    same = {"question": "1+1?", "answers": ["2"]}
    lines = [{"id": check, "check": check, **same} for check in ("text", "math")]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setitem(sys.modules, "math_verify", None)
    asking = library.scenario("direct")()
    config = RunConfig(model="no such model", tasks=str(tmp_path / "t.jsonl"))
    assert runtime.tasks_of(asking, config) is not None
    with pytest.raises(ExtraMissing, match=r"pip install 'agentcho\[math\]'"):
        runtime.play(RunRequest(asking, config.model_copy(update={"games": 2})))
