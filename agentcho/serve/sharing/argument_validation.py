"""Checks whether the arguments of a call fit the schema of its function.

Schemas come from clients, so references are not fetched, a pattern takes time proportional to the text, and the total
work for a request is limited.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs
import jsonschema
import referencing

from agentcho.protocol.regex_cardinality import MatchingTexts, RegexAutomaton, Uncountable
from agentcho.serve.request import ToolDefinition

Check = Callable[[Any, Any, Any, Mapping[str, Any]], Iterator[Any] | None]
MOST = 1 << 16
"""Maximum work of a request: about as many microseconds on one core."""
EACH = 8
"""The work of a keyword or subschema, beside that for each item of a keyword's value and of what it is applied to."""
SLOW = "patternProperties", "$anchor", "$dynamicAnchor", "$id"
"""Keywords that are not evaluated: the library matches names with expressions that may take forever, and searches the
whole schema for each reference to a name. The `$id` of the whole schema is harmless."""


class _Unknown(Exception):
    """A schema cannot be evaluated here."""


def fits(tool: ToolDefinition, arguments: str) -> bool:
    """Whether `arguments`, a JSON object, fit the function; see `any_fits`."""
    return any_fits([(tool, arguments)])


def any_fits(calls: Iterable[tuple[ToolDefinition, str]], answers: int = 1) -> bool:
    """Whether the arguments of any of these calls, JSON objects, fit its function. A schema that cannot be evaluated
    excludes nothing: one with an unknown reference, too much work, an unsupported kind of pattern, patterns of names,
    names of subschemas, keywords that depend on what others evaluated, or a fault. `answers`: the number of answers of
    the request, which share the work."""
    validator = _validator(MOST // answers)
    return any(_fits(validator, tool, arguments) for tool, arguments in calls)


def _fits(validator: Any, tool: ToolDefinition, arguments: str) -> bool:
    if tool.parameters is None:
        return bool(json.loads(arguments) == {})
    inside = json.dumps({name: value for name, value in tool.parameters.items() if name != "$id"})
    if any(f'"{name}"' in inside for name in SLOW):
        return True
    registry: Any = referencing.Registry()
    try:
        return bool(validator(tool.parameters, registry=registry).is_valid(json.loads(arguments)))
    except Exception:  # the library raises many kinds for schemas with faults, and for numbers that are too large
        return True


def _validator(most: int) -> Any:
    """Make a class of validators that all limit their work together."""
    left = [most]

    def spend(work: int) -> None:
        left[0] -= work
        if left[0] < 0:
            raise _Unknown

    def counted(check: Check) -> Check:
        def follow(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any] | None:
            sizes = (len(each) for each in (value, instance) if isinstance(each, list | dict))
            spend(EACH + sum(sizes))
            return check(validator, value, instance, schema)

        return follow

    def unique(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        spend(len(instance) ** 2 if isinstance(instance, list) else 0)  # the library compares each with each
        yield from known["uniqueItems"](validator, value, instance, schema)

    def pattern(validator: Any, value: Any, text: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        if isinstance(text, str) and not _matches(value, text, spend):
            yield jsonschema.exceptions.ValidationError("it does not match a pattern")

    def evolved(validator: Any, **changes: Any) -> Any:
        spend(EACH)
        return attrs.evolve(validator, **changes)  # the library's takes another class where `$schema` names one

    known = jsonschema.Draft202012Validator.VALIDATORS
    own = {"pattern": pattern, "uniqueItems": unique, "unevaluatedItems": _unknown, "unevaluatedProperties": _unknown}
    checks = {name: counted(check) for name, check in {**known, **own}.items()}
    validators: Any = jsonschema.validators.extend(jsonschema.Draft202012Validator, checks)
    validators.evolve = evolved
    return validators


def _unknown(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    """The library finds what other keywords evaluated by evaluating them again, which doubles the work at each
    depth."""
    raise _Unknown


def _matches(pattern: str, text: str, spend: Callable[[int], None]) -> bool:
    try:
        automaton = RegexAutomaton(pattern)
        spend(len(automaton.edges) * (len(text) + 8) // 4)
        return MatchingTexts((pattern,)).contains(text)
    except Uncountable:
        raise _Unknown from None
