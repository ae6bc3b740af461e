"""Whether a text of the code contains a value that a verb has returned."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pydantic import BaseModel

from agentcho.provenance.returned_values import ReturnedValue, has_value, of_json


@pytest.mark.parametrize(
    ("text", "value", "there"),
    [
        ("Bob!", "bob", True),
        ("bob_1 votes", "bob", True),
        ("bobsled", "bob", False),
        ("投票结果是张三出局", "张三", True),
        ("张三bob出局", "bob", True),
        ("player2 is out", "2", True),
        ("player12 is out", "2", False),
        ("it is 13.5", "3.5", False),
        ("it is -3.5", "3.5", True),
        ("vielen Dank, Müller", "mül", False),
    ],
)
def test_a_value_is_a_word_of_its_own_in_its_own_script(text: str, value: str, there: bool) -> None:
    assert has_value(text, ReturnedValue((value,))) is there


@pytest.mark.parametrize(
    ("text", "value", "there"),
    [
        ("The best bid is 3.50.", 3.5, True),
        ("It costs 1,250.00 today", 1250, True),
        ("It costs 1,250 today", 1250, True),
        ("It costs 1.250,00 heute", 1250, True),
        ("It costs 1 250 today", 1250, True),
        ("It costs 12,250 today", 1250, False),
        ("It costs 1,251 today", 1250, False),
        ("about 2.7", 2.718, True),
        ("about 2.8", 2.718, False),
        ("3 of us", 2.718, False),
        ("it is -3.50", -3.5, True),
    ],
)
def test_a_number_may_be_formatted_or_rounded(text: str, value: float, there: bool) -> None:
    assert has_value(text, of_json(json.dumps({"price": value}))) is there


class Reply(BaseModel):
    """An answer whose only leaf may stand in any text."""

    sure: bool


def test_a_whole_answer_is_a_value_even_if_its_leaves_are_not() -> None:
    reply = Reply(sure=True)
    value = of_json('{ "sure": true }')
    assert not has_value("that is true", value)
    assert has_value(f"I have {reply.model_dump_json()}", value)
    assert has_value(json.dumps({"reply": reply.model_dump()}), value)
    assert of_json("true") == ReturnedValue(())


class Verdict(BaseModel):
    """An answer of which no leaf is left."""

    sure: bool
    inner: dict[str, bool]


@pytest.mark.parametrize(
    "spelled",
    [
        lambda verdict: str(verdict),
        lambda verdict: repr(verdict),
        lambda verdict: str(verdict.model_dump()),
        lambda verdict: verdict.model_dump_json(indent=2),
        lambda verdict: json.dumps(verdict.model_dump(), indent=4),
        lambda verdict: json.dumps(verdict.inner),
        lambda verdict: str(verdict.inner),
    ],
)
def test_a_whole_answer_is_found_as_python_pydantic_and_json_spell_it(spelled: Callable[[Verdict], str]) -> None:
    value = of_json('{"sure":true,"inner":{"told":false}}', known=("sure", "inner", "told"))
    assert has_value(f"it is {spelled(Verdict(sure=True, inner={'told': False}))}.", value)
    assert not has_value(f"it is {spelled(Verdict(sure=False, inner={'told': True}))}.", value)


def test_a_key_is_a_word_of_an_answer_unless_its_schema_has_it() -> None:
    told = '{"votes": {"bob": 3}}'
    assert has_value("bob is out", of_json(told, known=("votes",)))
    assert not has_value("the votes are counted", of_json(told, known=("votes",)))
