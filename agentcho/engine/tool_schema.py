"""Builds the JSON schema of a call of one of several functions.

The schemas of their arguments go into one document, so their references are rewritten to the new places of the
definitions. Independent of how a template writes a call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentcho.errors import RequestError, shown
from agentcho.protocol.tools import ToolDefinition

PLACES = ("$defs", "definitions")
NAMED = ("properties", "patternProperties", "dependentSchemas", *PLACES)
"""Keywords whose value maps names to schemas. The names are the user's, not keywords."""
ELSEWHERE = ("allOf", "anyOf", "oneOf", "if", "$ref", "$dynamicRef", "patternProperties", "dependentSchemas")
"""Keywords that may allow other keys of the same object."""
VALUES = ("const", "enum", "default", "examples")
"""Keywords whose value is data that contains no keywords."""
_DEFINED = re.compile(r"#/(\$defs|definitions)/([^/]+)(/.*)?", re.DOTALL)


def chosen_functions(tools: Sequence[ToolDefinition], named: str | None) -> list[ToolDefinition]:
    """The functions of which one is to be called. Raises `RequestError` if there is none."""
    found = [tool for tool in tools if named is None or tool.name == named]
    if not found:
        raise RequestError(
            f"no function named {shown(named)}; give the name of one of the tools"
            if named
            else "tools is empty; give at least one"
        )
    return found


def call_schema(
    tools: Sequence[ToolDefinition],
    key: str,
    answer: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The schema of an object with the name of a function, its arguments as `key`, and `more` properties, or
    alternatively of `answer`, if given. Raises `RequestError` for parameters that are not the schema of an object."""
    found = [_Hoisted(arguments_schema(tool), place) for place, tool in enumerate(tools)]
    ways = [_call(tool.name, key, each.schema, more or {}) for tool, each in zip(tools, found, strict=True)]
    if answer is not None:
        found.append(_Hoisted(answer, len(found)))
        ways.append(found[-1].schema)
    definitions = {name: each for one in found for name, each in one.definitions.items()}
    whole = ways[0] if len(ways) == 1 else {"anyOf": ways}
    return whole | ({"$defs": definitions} if definitions else {})


def _call(name: str, key: str, arguments: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    properties = {"name": {"const": name}, key: arguments, **more}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def arguments_schema(tool: ToolDefinition) -> dict[str, Any]:
    """The schema of a function's arguments. Raises `RequestError` if they are not an object."""
    given = {"properties": {}, "additionalProperties": False} if tool.parameters is None else tool.parameters
    if given.get("type", "object") != "object":
        raise RequestError(
            f"the parameters of the function {shown(tool.name)} do not have the type object; change their type"
        )
    if "properties" in given and not any(word in given for word in ELSEWHERE):
        # The function accepts no other keys, and a small model that may invent keys does so without end.
        given = {"additionalProperties": False, **given}
    return {"type": "object"} | given


class _Hoisted:
    """A `schema` that can be placed anywhere in a document. `definitions` go into the "$defs" of the root."""

    def __init__(self, given: Mapping[str, Any], place: int) -> None:
        self._place, self._whole = place, False
        self.definitions: dict[str, Any] = {}
        self.schema = self._schema({key: value for key, value in given.items() if key not in PLACES})
        for kind in PLACES:
            defined = given.get(kind)
            for name, each in defined.items() if isinstance(defined, dict) else ():
                self.definitions[self._prefix(kind) + name] = self._schema(each)
        if self._whole:
            self.definitions[str(place)] = self.schema

    def _prefix(self, kind: str) -> str:
        return f"{self._place}{'.' if kind == '$defs' else ':'}"

    def _schema(self, given: Any) -> Any:
        """A schema with rewritten references. Its dialect is left out, because the document has one."""
        if isinstance(given, list):
            return [self._schema(each) for each in given]
        if not isinstance(given, dict):
            return given
        return {key: self._value(key, value) for key, value in given.items() if key != "$schema"}

    def _value(self, key: str, value: Any) -> Any:
        if key == "$ref" and isinstance(value, str):
            return self._turned(value)
        if key in VALUES:
            return value
        if key in NAMED and isinstance(value, dict):
            return {name: self._schema(each) for name, each in value.items()}
        return self._schema(value)

    def _turned(self, reference: str) -> str:
        if found := _DEFINED.fullmatch(reference):
            kind, name, rest = found.groups(default="")
            return f"#/$defs/{self._prefix(kind)}{name}{rest}"
        if not reference.startswith("#"):
            return reference
        self._whole = True
        return f"#/$defs/{self._place}{reference[1:]}"
