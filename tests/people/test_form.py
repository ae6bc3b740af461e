"""Questions as forms: their fields, and the JSON made from them."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from typing import Any, Literal

import anyio
import pytest
from pydantic import BaseModel, Field, field_validator

from agentcho.display.people.form import Form, form_of
from agentcho.display.people.lines import chosen
from agentcho.display.people.session import Session
from agentcho.games.play.people import PersonPrompt
from agentcho.message import EVERYONE
from agentcho.protocol.call import Sampling
from agentcho.protocol.json_schema import closed


class Place(BaseModel):
    """Where."""

    town: str
    streets: list[str] = []


class Plan(BaseModel):
    """All kinds of fields."""

    what: str = Field(description="what to do", min_length=2)
    when: Literal["now", "later"]
    count: int = Field(ge=1, le=3)
    share: float | None = None
    sure: bool = False
    place: Place
    more: dict[str, int] = {}

    @field_validator("what")
    @classmethod
    def no_war(cls, what: str) -> str:
        if "war" in what:
            raise ValueError("no war")
        return what


def asked(model: type[BaseModel] | None = None, **options: Any) -> PersonPrompt:
    if model is not None:
        options["json_schema"] = closed(model.model_json_schema())
    split = lambda words: [ord(letter) for letter in words]  # noqa: E731
    join = lambda ids: "".join(map(chr, ids))  # noqa: E731
    told = EVERYONE, "", None, Sampling(**options), ("a", "b") if "choices" in options else ()
    return PersonPrompt(0, "bob", "bob.0", *told, model, inf, 500, split, join)


def fill(form: Form, *typed: str) -> Any:
    """Fills in the fields one after another; returns the answer."""
    words: str | None = None
    for each in typed:
        words, fault = form.enter(each)
        assert fault is None, fault
    assert words is not None
    return json.loads(words)


@pytest.mark.parametrize(
    ("deadline", "note"), [(inf, "was withdrawn"), (-inf, "was withdrawn because its time was up")]
)
def test_a_question_that_is_withdrawn_is_late_only_after_its_deadline(deadline: float, note: str) -> None:
    session = Session(["bob"], 1)

    async def asking() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(session.ask, replace(asked(), deadline=deadline))
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()

    anyio.run(asking)
    assert session.note == f"the last question {note}"


def test_each_value_has_a_field_and_what_is_typed_becomes_json() -> None:
    form = form_of(asked(Plan))
    names = [each.name for each in form.fields]
    assert names == ["what", "when", "count", "share", "sure", "place.town", "place.streets", "more"]
    assert form.fields[0].help == "what to do, at least 2 letters"
    assert form.fields[2].help == "a whole number, at least 1, at most 3"
    assert [option.label for option in form.fields[1].options] == ["now", "later"]
    answer = fill(form, "eat", '"now"', "2", "0.5", "true", "Rome", "A\nB", '{"a": 1}')
    assert answer == {
        "what": "eat",
        "when": "now",
        "count": 2,
        "share": 0.5,
        "sure": True,
        "place": {"town": "Rome", "streets": ["A", "B"]},
        "more": {"a": 1},
    }
    Plan.model_validate(answer)


def test_what_is_not_needed_can_be_left_out() -> None:
    form = form_of(asked(Plan))
    answer = fill(form, "eat", '"later"', "1", "", "", "Rome", "", "")
    assert answer == {"what": "eat", "when": "later", "count": 1, "place": {"town": "Rome"}}


class Extra(BaseModel):
    """Nothing that is needed."""

    note: str | None = None


class Order(BaseModel):
    """An object that is needed, with nothing needed in it."""

    what: str
    extra: Extra


def test_an_object_that_is_needed_is_there_even_if_all_of_it_is_left_out() -> None:
    assert fill(form_of(asked(Order)), "tea", "") == {"what": "tea", "extra": {}}


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["x"], "too short"),
        (["eat", '"now"', "9"], "9"),
        (["eat", '"now"', "many"], "not a number"),
        (["eat", '"now"', "1.5"], "1.5"),
        (["eat", '"now"', "NaN"], "JSON"),
        (["eat", '"now"', "1", "", "", "Rome", "", "{"], "JSON"),
        (["eat", '"now"', "1", "", "", "Rome", "", '{"a": "b"}'], "b"),
    ],
)
def test_what_does_not_fit_is_told_at_the_field(typed: list[str], told: str) -> None:
    form = form_of(asked(Plan))
    for each in typed[:-1]:
        assert form.enter(each) == (None, None)
    words, fault = form.enter(typed[-1])
    assert words is None
    assert told in str(fault)
    assert form.place == len(typed) - 1


def test_what_the_model_refuses_leads_back_to_its_field_with_all_that_was_typed() -> None:
    form = form_of(asked(Plan))
    for each in ("war", '"now"', "1", "", "", "Rome", ""):
        form.enter(each)
    words, fault = form.enter("")
    assert (words, form.current.name) == (None, "what")
    assert fault is not None
    assert "no war" in fault
    assert form.typed[5] == "Rome"
    form.back()
    assert form.place == 0


def test_words_and_choices_are_forms_of_one_field() -> None:
    assert form_of(asked()).enter("hello") == ("hello", None)
    choice = form_of(asked(choices=("<a>", "<b>")))
    assert [(option.label, option.words) for option in choice.current.options] == [("a", "<a>"), ("b", "<b>")]
    assert choice.enter("<b>") == ("<b>", None)
    assert choice.enter("b") == (None, "it is not one of the 2 choices")


def test_a_schema_without_fields_is_typed_as_json() -> None:
    form = form_of(asked(json_schema={"type": "array", "items": {"type": "integer"}}))
    assert [each.name for each in form.fields] == [""]
    assert form.enter("[1, 2]") == ("[1, 2]", None)
    assert form.enter("1 2")[1] is not None
    assert form.enter("```json\n[1]\n```")[1] is not None


class Tree(BaseModel):
    """Of itself."""

    name: str
    child: Tree | None = None


def test_a_schema_of_itself_ends() -> None:
    form = form_of(asked(Tree))
    assert [each.name for each in form.fields] == ["name", "child"]
    assert fill(form, "a", '{"name": "b"}') == {"name": "a", "child": {"name": "b"}}


@pytest.mark.parametrize(
    ("choices", "typed", "meant"),
    [
        (("0", "1"), "1", "1"),
        (("0", "1"), "2", "1"),
        (("2", "1"), "2", "2"),
        (("yes", "no"), "2", "no"),
        (("yes", "no"), "b", "no"),
        (("yes", "no"), "no", "no"),
        (("yes", "no"), "3", "3"),
    ],
)
def test_a_typed_line_names_an_option_by_its_words_before_its_number(
    choices: tuple[str, ...], typed: str, meant: str
) -> None:
    assert chosen(form_of(asked(choices=choices)), typed) == meant
