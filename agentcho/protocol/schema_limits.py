"""Checks whether a JSON schema can be compiled safely, by its form alone.

The compiler itself does not refuse three kinds of schemas. A very deep one (references followed) overflows its stack,
which ends the process, and so does a whole number near the least one of 64 bits. If several patterns must match at
once, each pattern multiplies the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

DEEPEST = 300
"""Maximum nesting of mappings and lists. The compiler needs about 4 kB of its stack for each level."""
BOUND = 600
"""Maximum number of levels if only an upper bound of the depth is known."""
PLACES = ("$defs", "definitions")
PATTERNS = 8
"""Maximum number of patterns of a schema in which some of them must match at once."""
LEAST, MOST = -(1 << 63) + 1024, (1 << 64) - 1
"""The whole numbers that a grammar can be made of. Below them, a float may be the least number of 64 bits, or less."""
TOO_LARGE = f"the number is too large; give one from {LEAST} to {MOST}"
ASIDE = ("$ref", "anyOf", "oneOf", "pattern")
HARMLESS = frozenset({"minimum", "exclusiveMinimum", "default", "examples"})
"""Keywords whose numbers may be below `LEAST`, because the compiler refuses them or does not read them."""


def why_not_compilable(schema: Mapping[str, Any]) -> str | None:
    """Why the schema cannot be compiled, in words for an error. None if it can."""
    if _is_too_deep(schema):
        return f"goes more than {DEEPEST} levels deep, its references followed; make it flatter"
    if _is_crossed(schema):
        return f"has more than {PATTERNS} patterns, some of which hold at once; leave some out"
    if (place := fatal_number(schema)) is not None:
        return f"cannot be used, at {place}: {TOO_LARGE}"
    return None


def fatal_number(value: object, pointer: str = "#", exact: bool = False) -> str | None:
    """The JSON pointer of the first number on which the compiler of grammars (llguidance 1.9.1) may end the whole
    process: it recurses without end on a range of whole numbers whose ends are both the least number of 64 bits.
    `exact`: the value is one that answers must equal, so that names in it are not keywords."""
    if isinstance(value, int | float):
        return pointer if value < LEAST else None
    for name, part in parts(value):
        if not exact and name in HARMLESS and not isinstance(part, Mapping):
            continue
        inside = exact or name in ("const", "enum")
        if (found := fatal_number(part, f"{pointer}/{escaped(name)}", inside)) is not None:
            return found
    return None


def parts(value: object) -> Iterable[tuple[str, Any]]:
    """The parts of an object or a list, by name or number."""
    if isinstance(value, Mapping):
        return value.items()
    return [(str(number), part) for number, part in enumerate(value)] if isinstance(value, list) else ()


def escaped(name: str) -> str:
    """A name in a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _is_crossed(schema: Mapping[str, Any]) -> bool:
    """Whether it has more than `PATTERNS` patterns, and some value must match several schemas at once."""
    inside = [each for each in _all(schema) if isinstance(each, dict)]
    patterns = sum(isinstance(each.get("pattern"), str) for each in inside)
    return patterns > PATTERNS and any("allOf" in each or len(each.keys() & set(ASIDE)) > 1 for each in inside)


def _is_too_deep(schema: Mapping[str, Any]) -> bool:
    """Whether a path into the schema, with each reference followed once, is longer than `DEEPEST`. If references form a
    cycle, or name no definition, the longest path is not searched; an upper bound of its length is compared with
    `BOUND` instead."""
    named = {f"#/{place}/{name}": each for place in PLACES for name, each in _items(schema.get(place))}
    try:
        references = {to for each in _all(schema) if (to := _reference(each)) is not None}
        if not references <= named.keys():
            return (len(references) + 1) * _alone(schema) > BOUND
        walk = _Walk(named)
        own = walk.depth({name: each for name, each in schema.items() if name not in PLACES})
        return own > DEEPEST or (walk.circular and own + sum(map(_alone, named.values())) > BOUND)
    except RecursionError:
        return True


class _Walk:
    """Measures the depth of a schema, each definition once. `circular`: a definition refers to itself, directly or
    through others."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._known = dict[str, int]()
        self._inside = set[str]()
        self.circular = False

    def depth(self, value: Any) -> int:
        """The length of the deepest path into a value, references followed."""
        ways = [self._followed(_reference(value)), *(self.depth(each) for each in _inside(value))]
        return max(ways) + isinstance(value, dict | list)

    def _followed(self, to: str | None) -> int:
        if to is None or to in self._inside:
            self.circular |= to is not None
            return 0
        if to not in self._known:
            self._inside.add(to)
            self._known[to] = self.depth(self._named[to])
            self._inside.remove(to)
        return self._known[to]


def _alone(value: Any) -> int:
    """The length of the deepest path into a value, no references followed."""
    return max(map(_alone, _inside(value)), default=0) + isinstance(value, dict | list)


def _all(value: Any) -> Iterator[Any]:
    """The value, and every value inside it."""
    left = [value]
    while left:
        yield (each := left.pop())
        left += _inside(each)


def _reference(value: Any) -> str | None:
    to = value.get("$ref") if isinstance(value, dict) else None
    return to if isinstance(to, str) else None


def _inside(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _items(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []
