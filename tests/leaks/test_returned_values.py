"""Whether a text of the code contains a value that a verb has returned."""

from __future__ import annotations

import json

import pytest
from pydantic import BaseModel

from agentcho.provenance.returned_values import has_value, of_json


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
    assert has_value(text, (value,)) is there


class Reply(BaseModel):
    """An answer whose only leaf may stand in any text."""

    sure: bool


def test_a_whole_answer_is_a_value_even_if_its_leaves_are_not() -> None:
    reply = Reply(sure=True)
    value = of_json('{ "sure": true }')
    assert not has_value("that is true", value)
    assert has_value(f"I have {reply.model_dump_json()}", value)
    assert has_value(json.dumps({"reply": reply.model_dump()}), value)
    assert of_json("true") == ()
