"""Closes the JSON schemas of pydantic models: an object with keys that its model does not have does not match.

Does not know: who answers.
"""

from __future__ import annotations

from typing import Any

MAPS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
ONES = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, with every object that lists its keys and does not say whether it may have others forbidding them."""
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
