"""Parses the parameters of reuse methods from text, and checks those that come from a call."""

from __future__ import annotations

import re
from math import inf

from agentcho.errors import RequestError, shown

WORD = 1 << 63
"""Numbers from -WORD up to WORD - 1 fit into 64 bits."""


def whole_in(value: str | None) -> int | None:
    """The whole number from 0, of at most 18 digits, that a text is. None if it is not one."""
    return int(value) if value is not None and re.fullmatch(r"[0-9]{1,18}", value) else None


def share_in(value: str | None) -> float | None:
    """The number above 0, at most 1, that a text is. None if it is not one."""
    if value is None or not re.fullmatch(r"0?\.[0-9]+|1(\.0+)?", value):
        return None
    return float(value) or None


def whole(value: object, what: str) -> int:
    """The value as a whole number of 64 bits. Raises `RequestError` otherwise, which names it by `what`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"{what} is {shown(value)}; give a whole number")
    number = int.__index__(value)
    if not -WORD <= number < WORD:
        raise RequestError(f"{what} is {shown(number)}; give a whole number that fits 64 bits")
    return number


def share(value: object, what: str) -> float:
    """The value as a number above 0, at most 1. Raises `RequestError` otherwise, which names it by `what`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise RequestError(f"{what} is {shown(value)}; give a number above 0 and at most 1")
    return float(value)


def positive(value: object, what: str) -> float:
    """The value as a finite number above 0. Raises `RequestError` otherwise, which names it by `what`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf:
        raise RequestError(f"{what} is {shown(value)}; give a number above 0, such as 0.9")
    return float(value)
