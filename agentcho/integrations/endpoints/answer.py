"""Checks that an answer is what the call asked for, whatever the server claims to support.

Independent of how the answer was received.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jsonschema
import referencing

from agentcho.errors import RequestError
from agentcho.integrations.endpoints.request import WRAPPED
from agentcho.protocol.call import Sampling

FENCED = re.compile(r"\A```[a-zA-Z]*\n(.*?)\n?```\Z", re.DOTALL)
MARKS = " \t\n\r\"'`*\u201c\u201d\u2018\u2019\u00ab\u00bb"
"""Characters that a model puts around a choice when it quotes it."""
LONGEST = 300


class CheckedAnswer(NamedTuple):
    """The text of an answer in the form that the call asked for, or what is wrong with it (`fault`), in words for the
    model. An empty `fault` means that nothing is wrong."""

    text: str
    fault: str = ""


def check_schema(sampling: Sampling) -> None:
    """Check the JSON schema of a sampling. `RequestError`: no answer could be checked against it."""
    if sampling.json_schema is None:
        return
    try:
        jsonschema.Draft202012Validator.check_schema(sampling.json_schema)
    except jsonschema.exceptions.SchemaError as error:
        raise _unusable(error.message[:LONGEST]) from None
    except RecursionError:
        raise _unusable("it is nested too deeply") from None


def _unusable(why: str) -> RequestError:
    return RequestError(f"json_schema is not usable: {why}; simplify the schema", "sampling")


def checked(sampling: Sampling, text: str, whole: bool) -> CheckedAnswer:
    """Check the text of an answer. `whole`: no limit cut it off."""
    if sampling.choices is not None:
        return _choice(sampling.choices, text)
    if sampling.json_schema is not None:
        return _json(sampling.json_schema, text, whole)
    return CheckedAnswer(text)


def _choice(choices: Sequence[str], text: str) -> CheckedAnswer:
    """Match an answer to a choice: verbatim, as JSON with one key, or else the only choice that it equals apart from
    spaces, surrounding quotes, a full stop and letter case."""
    if text in choices:
        return CheckedAnswer(text)
    said = _unwrapped(text)
    for same in (str, _bare, _folded):
        found = [choice for choice in choices if same(choice) == same(said)]
        if len(found) == 1:
            return CheckedAnswer(found[0])
    return CheckedAnswer(text, "Your answer was none of the texts to choose from.")


def _unwrapped(text: str) -> str:
    try:
        found = _value(text)
    except ValueError:
        return text
    inner = found.get(WRAPPED) if isinstance(found, dict) else found
    return inner if isinstance(inner, str) else text


def _bare(text: str) -> str:
    return text.strip(MARKS).removesuffix(".").strip(MARKS)


def _folded(text: str) -> str:
    return _bare(text).casefold()


def _json(schema: dict[str, Any], text: str, whole: bool) -> CheckedAnswer:
    fenced = FENCED.match(text.strip())
    bare = fenced[1].strip() if fenced else text.strip()
    try:
        value = _value(bare)
    except ValueError:
        return CheckedAnswer(text, "Your answer was no JSON." if whole else "Your answer was cut off: it was too long.")
    fault = _fault(schema, value)
    return CheckedAnswer(bare, fault and f"Your answer does not match the JSON schema: {fault[:LONGEST]}.")


def _value(text: str) -> Any:
    """Return the value of a JSON text. ValueError: it is not JSON, or uses constants that only Python accepts."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("too deep") from None


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _fault(schema: dict[str, Any], value: Any) -> str:
    """Return how a value violates the schema, empty if it matches. No document but the schema itself is consulted."""
    registry: Any = referencing.Registry()
    try:
        found = jsonschema.Draft202012Validator(schema, registry=registry).iter_errors(value)
        worst = jsonschema.exceptions.best_match(found)
    except RecursionError:
        return "it is too deep"
    except OverflowError:
        return "a number in it is too large"
    except (referencing.exceptions.Unresolvable, re.error) as error:
        raise _unusable(f"{error}") from None
    if worst is None:
        return ""
    path = ".".join(map(str, worst.absolute_path))
    return f"at {path}: {worst.message}" if path else worst.message
