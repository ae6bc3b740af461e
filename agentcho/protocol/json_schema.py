"""Closed JSON schemas of pydantic models: an object with keys that its model does not have does not match."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

MAPS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
ONES = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")


class _Repeating(GenerateJsonSchema):
    """Makes schemas in which items of a set may repeat, because validation removes duplicates."""

    def set_schema(self, schema: Any) -> dict[str, Any]:
        """The schema of a set."""
        return _repeating(super().set_schema(schema))

    def frozenset_schema(self, schema: Any) -> dict[str, Any]:
        """The schema of a frozen set."""
        return _repeating(super().frozenset_schema(schema))


def _repeating(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "uniqueItems"}


def of_model(model: type[BaseModel]) -> dict[str, Any]:
    """The closed schema of an answer that its model validates. It admits equal items of a set, because no grammar can
    exclude them and the model merges them. Raises what pydantic raises for a model without a schema."""
    plain = getattr(model.model_json_schema, "__func__", None) is BaseModel.model_json_schema.__func__  # type: ignore[attr-defined]
    return closed(model.model_json_schema(schema_generator=_Repeating) if plain else model.model_json_schema())


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with `additionalProperties: false` in every object that lists its keys and does not set it."""
    shut = dict(schema)
    for key in MAPS:
        if isinstance(named := schema.get(key), dict):
            shut[key] = {name: _closed(each) for name, each in named.items()}
    for key in LISTS:
        if isinstance(several := schema.get(key), list):
            shut[key] = [_closed(each) for each in several]
    for key in ONES:
        if key in schema:
            shut[key] = _closed(schema[key])
    if "properties" in schema:
        shut.setdefault("additionalProperties", False)
    return shut


def _closed(schema: Any) -> Any:
    return closed(schema) if isinstance(schema, dict) else schema
