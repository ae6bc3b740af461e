"""What counts as an answer to a call, and what does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentcho import Sampling
from agentcho.errors import RequestError
from agentcho.integrations.endpoints.answer import check_schema, checked

CHOICES = ("yes", "no", "no way")
SCHEMA = {
    "$defs": {"n": {"type": "integer", "minimum": 1}},
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/n"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("said", "choice"),
    [
        ("yes", "yes"),
        (" no way\n", "no way"),
        ("Yes.", "yes"),
        ("**No**", "no"),
        ('"no"', "no"),
        ("\u201cno\u201d.", "no"),
        ('{"answer": "no way"}', "no way"),
        ('"yes"', "yes"),
        ("", None),
        ("yes no", None),
        ("maybe", None),
        ('{"answer": 5}', None),
        ('{"other": "yes"}', None),
    ],
)
def test_an_answer_is_one_choice_or_none(said: str, choice: str | None) -> None:
    found = checked(Sampling(choices=CHOICES), said, True)
    assert (found.text if not found.fault else None) == choice


@pytest.mark.parametrize("said", ["A", "a"])
def test_choices_that_differ_in_little_are_told_apart(said: str) -> None:
    assert checked(Sampling(choices=("a", "A")), said, True) == (said, "")
    assert checked(Sampling(choices=("aB", "Ab")), "ab", True).fault
    assert checked(Sampling(choices=(" a", "a")), " a", True) == (" a", "")


@pytest.mark.parametrize("said", ['{"a": 3}', ' {"a": 3}\n', '```json\n{"a": 3}\n```', '```\n{"a": 3}```'])
def test_json_that_matches_is_taken_bare(said: str) -> None:
    found = checked(Sampling(json_schema=SCHEMA), said, True)
    assert not found.fault
    assert json.loads(found.text) == {"a": 3}


@pytest.mark.parametrize(
    "said",
    ["", "three", '{"a": 3', '{"a": 0}', '{"a": "3"}', '{"b": 3}', '{"a": 3, "b": 1}', "[3]", '{"a": NaN}', "[" * 9**5],
)
def test_json_that_does_not_match_is_no_answer(said: str) -> None:
    assert checked(Sampling(json_schema=SCHEMA), said, True).fault


def test_what_was_cut_is_told_to_be_too_long() -> None:
    assert "cut off" in checked(Sampling(json_schema=SCHEMA), '{"a": ', False).fault


def test_a_schema_fetches_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(*args: Any, **more: Any) -> None:
        raise AssertionError("a schema asked the network")

    monkeypatch.setattr("urllib.request.urlopen", reached)
    with pytest.raises(RequestError, match="json_schema is not usable"):
        checked(Sampling(json_schema={"$ref": "http://127.0.0.1:9/schema"}), "1", True)


@pytest.mark.parametrize("schema", [{"type": 5}, {"type": "thing"}, {"properties": []}, {"minimum": "a"}])
def test_a_schema_that_is_none_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="json_schema is not usable"):
        check_schema(Sampling(json_schema=schema))


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(RequestError, match="json_schema is not usable"):
        checked(Sampling(json_schema={"pattern": "("}), '"a"', True)


def test_a_text_without_a_constraint_is_what_it_is() -> None:
    assert checked(Sampling(), " \n", True) == (" \n", "")


@pytest.mark.parametrize("number", ["1e400", "9" * 400])
def test_a_number_that_no_check_takes_is_a_fault_and_no_crash(number: str) -> None:
    found = checked(Sampling(json_schema={"type": "number", "multipleOf": 0.1}), number, True)
    assert found.fault == "Your answer does not match the JSON schema: a number in it is too large."
