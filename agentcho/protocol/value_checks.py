"""Checks single values of a call: numbers within bounds, texts, lists, schemas. Each value is read once.

The returned values are of Python's own types, never of a caller's class. Independent of calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Set
from itertools import islice
from typing import Any

from agentcho.errors import RequestError, shown
from agentcho.protocol.schema_limits import why_not_compilable

WORD = 1 << 63
"""Numbers from -WORD up to WORD - 1 fit into 64 bits."""
MOST = 1 << 17
"""Maximum number of items of a list."""
LONGEST = 1 << 18
"""Maximum number of characters of a schema as JSON."""


def checked_int(value: object, what: str, low: int = -WORD, high: int = WORD - 1) -> int:
    """The value as a whole number from `low` to `high`. Raises `RequestError` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"{what} is {type_name(value)}; give a whole number")
    number = int.__index__(value)
    if not low <= number <= high:
        bounds = (f" from {low}" if low > -WORD else "") + (f" to {high}" if high < WORD - 1 else " that fits 64 bits")
        raise RequestError(f"{what} is {shown(number)}; give a whole number{bounds}")
    return number


def checked_position(value: object) -> int:
    """The value as a position in a context, in tokens. Raises `RequestError` if it is not a position."""
    if type(value) is not int or not 0 <= value < WORD:
        raise RequestError.offsets(f"offset {shown(value)} is not a position")
    return value


def checked_bool(value: object, what: str) -> bool:
    """The value as a bool. Raises `RequestError` if it is neither True nor False."""
    if not isinstance(value, bool):
        raise RequestError(f"{what} is {type_name(value)}; give True or False")
    return value


def checked_text(value: object, what: str) -> str:
    """The value as a text that can be encoded. Raises `RequestError` if it is not a text, or has a lone surrogate."""
    if not isinstance(value, str):
        raise RequestError(f"{what} is {type_name(value)}; give a string")
    plain = str.__str__(value)
    if not plain.isascii():
        try:
            plain.encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"{what} contains a lone surrogate at character {error.start}, which cannot be encoded; remove it, or "
                "decode the source with errors='replace'"
            ) from None
    return plain


def checked_list(value: object, what: str, most: int = MOST, ordered: bool = True) -> tuple[Any, ...]:
    """The items of a list or another iterable, read once. Raises `RequestError` if the value is not iterable, is a
    text, has more than `most` items, or is a set or a mapping although the items must be `ordered`."""
    if type(value) is tuple or type(value) is list:
        items = tuple(value)
    else:
        none = str | bytes | bytearray | Mapping | Set if ordered else str | bytes | bytearray
        if isinstance(value, none) or not isinstance(value, Iterable):
            raise RequestError(f"{what} must be a list, not {type_name(value)}")
        try:
            items = tuple(islice(value, most + 1))
        except Exception as error:
            raise RequestError(f"{what} could not be read ({type(error).__name__}); give a list") from error
    if len(items) > most:
        raise RequestError(f"{what} must have at most {most} items")
    return items


def checked_ints(value: object, what: str, below: int | None = None) -> tuple[int, ...]:
    """The items of a list of whole numbers from 0, all `below` a bound. Raises `RequestError` if an item is not a whole
    number, or out of bounds."""
    items = checked_list(value, what)
    if not set(map(type, items)) <= {int}:
        items = tuple(checked_int(item, f"one of {what}", 0) for item in items)
    high = WORD - 1 if below is None else below - 1
    for item in (min(items), max(items)) if items else ():
        checked_int(item, f"one of {what}", 0, high)
    return items


def checked_schema(value: object, what: str) -> dict[str, Any]:
    """A copy of a JSON schema. Raises `RequestError` if the value is not a mapping, cannot be written as JSON, is too
    long, or cannot be compiled (see `why_not_compilable`)."""
    if not isinstance(value, Mapping):
        raise RequestError(f"{what} is {type_name(value)}; give a mapping")
    try:
        written = json.dumps(value, allow_nan=False)
        if not all(type(name) is str for name in value):
            raise TypeError("keys must be strings")
        read: dict[str, Any] = json.loads(written)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(
            f"{what} is not valid JSON ({type(error).__name__}: {str(error)[:80]}); give plain values"
        ) from None
    if len(written) > LONGEST:
        raise RequestError(f"{what} is {len(written)} characters long; give at most {LONGEST}")
    if wrong := why_not_compilable(read):
        raise RequestError(f"{what} {wrong}")
    checked_text(json.dumps(read, ensure_ascii=False), what)
    return read


def type_name(value: object) -> str:
    """A value by its type, for an error: "a value of type int", "the class int" or "None"."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "None" if value is None else f"a value of type {type(value).__name__}"
