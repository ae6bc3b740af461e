"""Builds the smallest JSON document of a schema in the form that pydantic writes, for the fake engine.

Ignores patterns, formats and multiples. With a model, `runner/constraint` constrains the decode instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentcho.errors import RequestError

Schema = Mapping[str, Any]
MOST = 1 << 14
"""Maximum number of values of a document, counting each item of a list and each character of a text."""


def smallest(schema: Schema) -> str:
    """JSON text that fits `schema`, without optional parts. Raises `RequestError` if every document is infinite or too
    large, or the schema is invalid."""
    try:
        value = _value(schema, _Definitions({**schema.get("$defs", {})}), frozenset())
    except _Endless:
        raise RequestError(
            "json_schema allows no finite document, or nests too deeply; make recursive fields optional", "sampling"
        ) from None
    except (
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:  # any of these: it is not a schema
        raise RequestError(
            f"json_schema is not usable ({type(error).__name__}); simplify the schema", "sampling"
        ) from error
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class _Endless(Exception):
    """A definition requires itself, or the document has too many values."""


class _Definitions(dict[str, Any]):
    """The definitions of a schema, and the number of values made so far."""

    made = 0

    def count(self, values: int) -> int:
        """Count `values` more values. Returns `values`."""
        self.made += values
        if self.made > MOST:
            raise _Endless
        return values


def _value(schema: Schema, defs: _Definitions, inside: frozenset[str]) -> Any:
    """The smallest value of a schema. `inside`: the definitions that enclose the value."""
    defs.count(1)
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        if name in inside:
            raise _Endless
        return _value(defs[name], defs, inside | {name})
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return _first(schema[several], defs, inside)
    return _plain(schema, defs, inside)


def _first(schemas: list[Schema], defs: _Definitions, inside: frozenset[str]) -> Any:
    """The smallest value of the first of several schemas that has a finite one."""
    for schema in schemas:
        try:
            return _value(schema, defs, inside)
        except _Endless:
            continue
    raise _Endless


def _plain(schema: Schema, defs: _Definitions, inside: frozenset[str]) -> Any:
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            return {name: _value(fields[name], defs, inside) for name in schema.get("required", ())}
        case "array":
            first = [_value(item, defs, inside) for item in schema.get("prefixItems", ())]
            more = defs.count(max(0, schema.get("minItems", 0) - len(first)))
            return first + ([_value(schema.get("items", {}), defs, inside)] * more if more else [])
        case "string":
            return "x" * defs.count(max(0, schema.get("minLength", 0)))
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return False
        case None | "null" | list():
            return None
        case _:
            raise RequestError(
                "json_schema is not usable: it has a type that JSON does not define; use a JSON type", "sampling"
            )


def _number(schema: Schema) -> float:
    """0, or the nearest number within the bounds. Exclusive bounds are passed by 1, or by half their distance if they
    are at most 1 apart."""
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    step = 1 if low is None or high is None or high - low > 1 or schema["type"] == "integer" else (high - low) / 2
    number: float = 0
    if low is not None:
        number = max(number, low + (step if "exclusiveMinimum" in schema else 0))
    if high is not None:
        number = min(number, high - (step if "exclusiveMaximum" in schema else 0))
    return number
