"""Schemas that would crash or hang the compiler are refused; none that somebody would mean is."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from agentcho import Sampling
from agentcho.errors import RequestError
from agentcho.games.tools.tool import Tool
from agentcho.protocol.schema_limits import BOUND, DEEPEST, PATTERNS, why_not_compilable


def chain(links: int, last: dict[str, Any], name: str = "#/$defs/a{}") -> dict[str, Any]:
    """Definitions that each refer to the next, ending in `last`."""
    definitions = {f"a{number}": {"items": {"$ref": name.format(number + 1)}} for number in range(links)}
    return {"$defs": definitions | {f"a{links}": last}, "$ref": name.format(0)}


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"const": -(1 << 63)}, "#/const"),
        ({"type": "object", "properties": {"a": {"type": "integer", "maximum": -1e300}}}, "#/properties/a/maximum"),
        ({"enum": [1, {"minimum": -(1 << 63)}]}, "#/enum/1/minimum"),
    ],
)
def test_a_number_that_would_end_the_process_is_refused(schema: dict[str, Any], place: str) -> None:
    with pytest.raises(RequestError, match=rf"json_schema cannot be used, at {place}: the number is too large"):
        Sampling(json_schema=schema)
    with pytest.raises(RequestError, match=r"the schema of the tool t cannot be used, at #/properties/x"):
        Tool("t", "", {"type": "object", "properties": {"x": schema}}, print)


def test_a_number_that_the_compiler_refuses_or_does_not_read_is_left_to_it() -> None:
    assert why_not_compilable({"type": "integer", "minimum": -(1 << 63), "default": -1e300}) is None


class Tree(BaseModel):
    """A tree."""

    name: str
    left: Tree | None = None
    right: Tree | None = None
    rest: list[Tree] = []


class Wide(BaseModel):
    """Many trees, none of which is deep."""

    trees: dict[str, Tree]


@pytest.mark.parametrize("schema", [Tree.model_json_schema(), Wide.model_json_schema(), {"type": "integer"}, {}])
def test_what_models_come_to_is_not_deep(schema: dict[str, Any]) -> None:
    assert not why_not_compilable(schema)
    assert Sampling(json_schema=schema).json_schema == schema


def test_many_definitions_side_by_side_are_not_deep() -> None:
    fields = {f"k{number}": {"$ref": f"#/$defs/a{number}"} for number in range(2000)}
    definitions = {f"a{number}": {"type": "array", "items": {"type": "integer"}} for number in range(2000)}
    assert not why_not_compilable({"$defs": definitions, "properties": fields})


def circle(name: str) -> dict[str, Any]:
    """The end of a chain that refers back to its start."""
    return {"items": {"$ref": name.format(0)}}


NAMES = ("#/$defs/a{}", "#/%24defs/a{}")


@pytest.mark.parametrize("links", [DEEPEST // 2, 900, 5000])
@pytest.mark.parametrize("name", NAMES)
def test_a_chain_of_references_is_as_deep_as_it_is_long(links: int, name: str) -> None:
    assert why_not_compilable(chain(links, {"type": "integer"}))
    for last in ({"type": "integer"}, circle(name)):
        schema = chain(max(links, BOUND // 2), last, name)
        assert why_not_compilable(schema)
        with pytest.raises(RequestError, match="levels deep"):
            Sampling(json_schema=schema)


@pytest.mark.parametrize("name", NAMES)
def test_a_short_chain_is_not_deep(name: str) -> None:
    for last in ({"type": "integer"}, circle(name)):
        assert not why_not_compilable(chain(30, last, name))


def test_references_to_what_is_no_definition_are_all_counted() -> None:
    inner = chain(900, {"type": "integer"}, "#/$defs/a/$defs/a{}")
    assert why_not_compilable({"$defs": {"a": inner}, "$ref": "#/$defs/a/$defs/a0"})


def test_what_is_written_deep_is_deep() -> None:
    schema: dict[str, Any] = {}
    for _ in range(DEEPEST + 1):
        schema = {"items": schema}
    assert why_not_compilable(schema)


def test_a_definition_that_nothing_leads_to_counts_for_nothing() -> None:
    assert not why_not_compilable(chain(DEEPEST, {"type": "integer"}) | {"$ref": "#/$defs/a290"})


def pattern(number: int) -> dict[str, Any]:
    """One of many patterns."""
    return {"type": "string", "pattern": f".*a.{{{number}}}b.*"}


MANY = [pattern(number) for number in range(PATTERNS + 1)]
NESTED: dict[str, Any] = {}
for each in MANY:
    NESTED = each | {"anyOf": [NESTED]}


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": MANY},
        {"properties": {"x": {"allOf": [{"anyOf": MANY[:3]}, {"anyOf": MANY[3:]}]}}},
        {"$defs": {f"a{n}": each | {"$ref": f"#/$defs/a{n + 1}"} for n, each in enumerate(MANY)} | {"a9": {}}},
        NESTED,
    ],
)
def test_of_patterns_that_hold_at_once_there_are_few(schema: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="patterns, some of which hold at once"):
        Sampling(json_schema=schema)


def test_of_patterns_that_hold_apart_there_may_be_many() -> None:
    assert not why_not_compilable({"properties": {f"k{n}": each for n, each in enumerate(MANY * 9)}})
    assert not why_not_compilable({"allOf": MANY[:PATTERNS]})
