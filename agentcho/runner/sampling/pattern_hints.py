"""Finds how strings of a JSON schema may end, by its patterns: the ends of the shortest strings that match.

They are hints: a caller must check whether the string may end that way. Independent of grammars and tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentcho.protocol.regex_cardinality import RegexAutomaton, Uncountable

MOST = 256
"""The most hints that are given, and the most bytes in one."""


def hints(schema: Mapping[str, Any]) -> Sequence[bytes]:
    """What may precede the closing quotation mark of a string, in JSON, shortest first; empty if the schema has no
    pattern."""
    found = set[bytes]()
    for pattern, least in _patterns(schema):
        if (text := _shortest(pattern)) is not None:
            said = json.dumps("a" * (min(least, MOST) - len(text)) + text, ensure_ascii=False)[1:-1].encode()
            found |= {said[place:] for place in range(max(0, len(said) - MOST), len(said) + 1)}
    return sorted(found, key=lambda each: (len(each), each))[:MOST]


def _shortest(pattern: str) -> str | None:
    """The shortest string that matches, or None if there is none, or if the pattern has a construct that only a grammar
    supports."""
    try:
        return RegexAutomaton(pattern).shortest()
    except (Uncountable, RecursionError):
        return None


def _patterns(part: Any) -> Iterator[tuple[str, int]]:
    """All patterns in a part of a schema, each with the minimum length of its strings."""
    if isinstance(part, Mapping):
        pattern, least = part.get("pattern"), part.get("minLength")
        if isinstance(pattern, str):
            yield pattern, least if isinstance(least, int) else 0
        if isinstance(named := part.get("patternProperties"), Mapping):
            yield from ((pattern, 0) for pattern in named)
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from _patterns(each)
