"""Choices given to judges: close, in shuffled order, and determined by a seed alone."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from agentcho.lab.judging.cases import CANDIDATES, TASKS, drawn, written


@pytest.mark.parametrize("task", TASKS)
def test_a_choice_is_the_same_again_and_another_with_another_number(task: str) -> None:
    assert drawn(task, 3, 1) == drawn(task, 3, 1)
    assert len({drawn(task, number, 1) for number in range(5)} | {drawn(task, 3, 2)}) == 6


@pytest.mark.parametrize("task", ["votes", "answers", "slips"])
def test_one_solution_is_right_or_none_and_the_others_have_a_slip(task: str) -> None:
    for number in range(30):
        case = drawn(task, number, 1)
        wrong = 0
        for each in case.candidates:
            sums = re.findall(r"(\d+) ([-+x]) (\d+) = (\d+)\.", each.text)
            results = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "x": lambda a, b: a * b}
            slips = sum(results[sign](int(a), int(b)) != int(c) for a, sign, b, c in sums)
            assert slips <= 1
            assert each.text.endswith(f"The answer is {sums[-1][3]}.")
            assert each.chosen in (f"{each.author[-1]}.", f"{sums[-1][3]}.")
            wrong += slips
        assert wrong == CANDIDATES - (task != "slips")
        assert len({each.chosen for each in case.candidates}) == CANDIDATES


def test_drafts_use_the_same_words() -> None:
    case = drawn("merges", 0, 1)
    words = re.findall(r"Group 1: (.*)", case.before[1][1])[0].split(", ")
    assert len(words) == 4
    for each in case.candidates:
        assert all(re.search(rf"\b{word}\b", each.text) for word in words)
    assert len({each.text for each in case.candidates}) == CANDIDATES
    said = [each.text.split(". ") for each in case.candidates]
    for place in range(4):
        assert sorted(Counter(text[place] for text in said).values()) == [1, 3], "each has one sentence of its own"


@pytest.mark.parametrize("task", TASKS)
def test_orders_are_shuffled(task: str) -> None:
    first = Counter(drawn(task, number, 1).candidates[0].author for number in range(200))
    assert len(first) == CANDIDATES
    assert min(first.values()) > 20


def test_judges_read_all_candidates_in_order_and_say_so() -> None:
    cases = [drawn("votes", number, 1) for number in range(2)]
    plain, judging = (written("votes", cases, judging=way) for way in (False, True))
    messages = {message.id: message for message in judging.workflow.messages}
    assert [len(ballots) for ballots in judging.ballots] == [CANDIDATES] * 2
    for number, (case, ballots) in enumerate(zip(cases, judging.ballots, strict=True)):
        for each, id in zip(case.candidates, ballots, strict=True):
            said = messages[id]
            assert (said.author, said.text, said.header) == (case.by, each.chosen, case.header)
            assert said.parents == (f"{number}.rules", *judging.read[number])
            assert judging.read[number][-CANDIDATES:] == tuple(f"{number}.{each.author}" for each in case.candidates)
            assert said.reuse == "judge"
    assert not any(message.reuse for message in plain.workflow.messages)
