"""The smallest document of a JSON schema, as pydantic writes schemas. For fakes; `engine` constrains for real.

Does not know: patterns and formats.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def smallest(schema: Mapping[str, Any]) -> str:
    """JSON text that fits `schema`, without needless parts."""
    return json.dumps(_value(schema, schema.get("$defs", {})), separators=(",", ":"), ensure_ascii=False)


def _value(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Any:
    if "$ref" in schema:
        return _value(defs[schema["$ref"].rsplit("/", 1)[-1]], defs)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return _value(schema[several][0], defs)
    return _plain(schema, defs)


def _plain(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Any:
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            return {name: _value(fields[name], defs) for name in schema.get("required", ())}
        case "array":
            return [_value(schema.get("items", {}), defs)] * schema.get("minItems", 0)
        case "string":
            return "x" * schema.get("minLength", 0)
        case "integer" | "number":
            return schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
        case "boolean":
            return False
        case _:
            return None
