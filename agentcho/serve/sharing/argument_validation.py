"""Checks whether the arguments of a call fit the schema of its function.

Schemas come from clients, so references are not fetched, a pattern takes time proportional to the text, and the number
of references that are followed is limited.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jsonschema
import referencing

from agentcho.protocol.regex_cardinality import MatchingTexts, Uncountable
from agentcho.serve.request import ToolDefinition

Check = Callable[[Any, Any, Any, Mapping[str, Any]], Iterator[Any] | None]
MOST = 1 << 13
"""Maximum number of references of a schema that are followed."""


class _Unknown(Exception):
    """A schema cannot be evaluated here."""


def fits(tool: ToolDefinition, arguments: str) -> bool:
    """Whether `arguments`, a JSON object, fit the function. A schema that cannot be evaluated excludes nothing: one
    with an unknown reference, too many references, an unsupported kind of pattern, patterns of names, or a fault."""
    if tool.parameters is None:
        return bool(json.loads(arguments) == {})
    if "patternProperties" in json.dumps(tool.parameters):
        return True  # the library matches names with expressions that may take forever
    registry: Any = referencing.Registry()
    try:
        return bool(_validator()(tool.parameters, registry=registry).is_valid(json.loads(arguments)))
    except Exception:  # the library raises many kinds for schemas with faults, and for numbers that are too large
        return True


def _validator() -> Any:
    """Make a class of validators that counts the references it follows."""
    known = jsonschema.Draft202012Validator.VALIDATORS
    left = [MOST]

    def counted(check: Check) -> Check:
        def follow(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any] | None:
            left[0] -= 1
            if left[0] < 0:
                raise _Unknown
            return check(validator, value, instance, schema)

        return follow

    references = {name: counted(known[name]) for name in ("$ref", "$dynamicRef")}
    return jsonschema.validators.extend(jsonschema.Draft202012Validator, {**references, "pattern": _pattern})


def _pattern(validator: Any, pattern: Any, text: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    if isinstance(text, str) and not _matches(pattern, text):
        yield jsonschema.exceptions.ValidationError("it does not match a pattern")


def _matches(pattern: str, text: str) -> bool:
    try:
        return MatchingTexts((pattern,)).contains(text)
    except Uncountable:
        raise _Unknown from None
