"""Typed functions as tools: schema, declarations, and functions that are refused where they are defined."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

import agentcho
from agentcho.errors import RequestError
from agentcho.games.tools.tool import Tool
from agentcho.message import EVERYONE, Audience

NOBODY = Audience(frozenset())


class Place(BaseModel):
    city: str
    country: str = "FI"


@agentcho.tool
def weather(place: Place, days: Annotated[int, Field(ge=1, description="how far")] = 1) -> str:
    """The weather at a place."""
    return f"{place.city}: {days} days of rain"


def test_the_schema_is_that_of_the_parameters_and_takes_no_others() -> None:
    assert (weather.name, weather.description) == ("weather", "The weather at a place.")
    assert weather.schema["required"] == ["place"]
    assert weather.schema["additionalProperties"] is False
    assert weather.schema["properties"]["days"] == {
        "type": "integer",
        "minimum": 1,
        "default": 1,
        "description": "how far",
    }
    assert weather.schema["$defs"]["Place"]["additionalProperties"] is False


def test_arguments_come_in_the_types_of_the_parameters_and_the_tool_is_still_a_function() -> None:
    given = weather.validate('{"place": {"city": "Oulu"}}')
    assert given == {"place": Place(city="Oulu"), "days": 1}
    assert weather(**given) == "Oulu: 1 days of rain"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("{", "Invalid JSON"),
        ("[]", "object"),
        ('{"place": {"city": 3}}', "place.city"),
        ('{"place": {"city": "Oulu"}, "days": 0}', "days"),
        ('{"place": {"city": "Oulu"}, "hours": 2}', "hours"),
    ],
)
def test_arguments_that_do_not_fit_are_told_by_their_place(arguments: str, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        weather.validate(arguments)


def test_names_of_parameters_may_be_those_of_a_model() -> None:
    @agentcho.tool
    def odd(json: str, model_config: int, copy: Literal["a", "b"] = "a") -> str:
        return json

    assert list(odd.schema["properties"]) == ["json", "model_config", "copy"]
    assert odd.validate('{"json": "x", "model_config": 2}') == {"json": "x", "model_config": 2, "copy": "a"}


class Weather:
    """How the weather is."""

    def __call__(self, city: str, days: int = 1) -> str:
        return f"{city}: {days} days of rain"


class Told(Weather):
    def __call__(self, city: str, days: int = 1) -> str:
        """How it will be."""
        return super().__call__(city, days)


def test_objects_and_partials_are_tools_under_the_names_of_what_they_are_made_of() -> None:
    made = agentcho.tool(Weather())
    assert (made.name, made.description, list(made.schema["properties"])) == (
        "Weather",
        "How the weather is.",
        ["city", "days"],
    )
    assert agentcho.tool(Told()).description == "How it will be."
    partly = agentcho.tool(functools.partial(weather.function, days=3))
    assert (partly.name, partly.description, list(partly.schema["properties"])) == (
        "weather",
        "The weather at a place.",
        ["place"],
    )
    assert partly(**partly.validate('{"place": {"city": "Oulu"}}')) == "Oulu: 3 days of rain"
    placed = agentcho.tool(functools.partial(Weather(), "Oulu"))
    assert (placed.name, list(placed.schema["properties"])) == ("Weather", ["days"])
    assert placed(**placed.validate("{}")) == "Oulu: 1 days of rain"


def test_what_is_not_declared_is_not_trusted() -> None:
    assert weather.declared.audience == EVERYONE
    assert (weather.declared.effect, weather.declared.trusted, weather.declared.idempotent) == (True, False, False)
    assert weather.declared.results is None


def test_what_nobody_learns_of_changes_nothing_unless_it_is_said() -> None:
    made = agentcho.tool(audience="nobody")(weather.function)
    assert (made.declared.audience, made.declared.effect) == (NOBODY, False)
    assert agentcho.tool(audience="nobody", effect=True)(weather.function).declared.effect


def test_what_is_declared_to_change_nothing_may_be_repeated() -> None:
    """That nobody learns the arguments does not say it: a payment to oneself may be such a call."""

    def repeated(**how: Any) -> bool:
        return agentcho.tool(**how)(weather.function).declared.idempotent

    assert repeated(effect=False)
    assert repeated(audience="nobody", effect=False)
    assert not repeated(audience="nobody")
    assert not repeated(effect=True)
    assert not repeated(effect=False, idempotent=False)
    assert repeated(effect=True, idempotent=True)


def test_those_who_learn_of_arguments_can_be_named() -> None:
    assert agentcho.tool(audience=["bob"])(weather.function).declared.audience == Audience(frozenset({"bob"}))


class Opaque:
    pass


def untyped(x) -> str:  # type: ignore[no-untyped-def]
    return ""


def many(*x: int) -> str:
    return ""


def opaque(x: Opaque) -> str:
    return ""


def calling(x: Callable[[], int]) -> str:
    return ""


def unsaid(x: str = Opaque()) -> str:  # type: ignore[assignment]
    return ""


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (untyped, "its parameter x has no type"),
        (many, "cannot be passed by name"),
        (opaque, "JSON cannot express"),
        (calling, "JSON cannot express"),
        (unsaid, "JSON cannot express"),
        (lambda: "", "'<lambda>' cannot name a tool"),
        (Opaque, "the class Opaque"),
        ("weather", "give a function"),
    ],
)
def test_what_cannot_be_a_tool_is_told_where_it_is_defined(function: Any, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        agentcho.tool(function)


class Endless(BaseModel):
    inner: Endless


def impossible(place: Place, days: Annotated[int, Field(ge=3, le=2)]) -> str:
    return ""


def endless(box: Endless) -> str:
    return ""


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (impossible, "impossible can never be called: its schema is not usable at #/properties/days: Unsatisfiable"),
        (endless, "endless can never be called: .*it allows no finite document"),
    ],
)
def test_what_can_never_be_called_is_told_where_it_is_defined(function: Any, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        agentcho.tool(function)


def test_what_only_a_grammar_cannot_hold_is_a_tool() -> None:
    @agentcho.tool
    def read(path: Path, once: set[int], odd: Annotated[str, Field(json_schema_extra={"format": "phone"})]) -> str:
        return ""

    assert read.schema["properties"]["path"]["format"] == "path"
    assert read.schema["properties"]["once"]["uniqueItems"] is True
    assert read.schema["properties"]["odd"]["format"] == "phone"


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"timeout": 0}, "seconds above 0"),
        ({"most": 0}, "most of a tool"),
        ({"effect": "no"}, "True or False"),
        ({"trusted": 1}, "True or False"),
        ({"name": "a b"}, "letters, digits"),
        ({"audience": "every body "}, "begins or ends"),
        ({"isolate": True}, "inside another function"),
        ({"audiance": "nobody"}, "a tool has no declaration 'audiance'; did you mean 'audience'"),
        ({"owner": "me"}, "no declaration 'owner'; the declarations are audience, effect,"),
    ],
)
def test_declarations_that_cannot_be_are_told_too(declared: dict[str, Any], told: str) -> None:
    def inner(x: str) -> str:
        return x

    with pytest.raises(agentcho.AgentchoError, match=told):
        agentcho.tool(**declared)(inner)


def test_a_tool_is_shown_by_its_name() -> None:
    assert isinstance(weather, Tool)
    assert repr(weather) == "<Tool weather>"
