"""Counts exactly how many values a JSON schema admits, and tests whether a value is one of them.

Values are compared independently of their spelling; with one spelling per value (`canonical`), the count is also that
of possible texts. Values of several alternatives are counted once. A schema with infinitely many values, or with a
keyword that cannot be counted here, is `Uncountable`; nothing is estimated. Independent of tokens and bits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import ceil, floor, lcm
from typing import Any

from agentcho.protocol.regex_cardinality import MatchingTexts, Uncountable

LARGEST = 1 << 16
"""Maximum number of bits of a count."""
MOST_STEPS = 20_000
"""Maximum number of examined overlaps of alternatives."""
LISTED = 1 << 12
"""Maximum number of items of arrays that are counted."""
SAYS_NOTHING = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema", "$id"}
) | {"discriminator", "x-guidance", "$defs", "definitions"}
"""Keywords that do not restrict values."""
OF_TYPE = {
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "number": set[str](),
    "string": {"minLength", "maxLength", "pattern"},
    "array": {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"},
    "object": {"properties", "required", "additionalProperties"},
    "boolean": set[str](),
    "null": set[str](),
}
JOINED = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"}


def canonical(value: Any) -> str:
    """The canonical spelling of a JSON value: no spaces, sorted keys. Raises ValueError if it is not JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True, allow_nan=False)


@dataclass(frozen=True)
class EnumeratedValues:
    """Values that are listed one by one, each in its canonical spelling."""

    texts: frozenset[str]

    def contains(self, value: Any) -> bool:
        return canonical(value) in self.texts

    def count(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class IntegerValues:
    """Multiples of `step` from `low` to `high` (None: unlimited)."""

    low: int | None = None
    high: int | None = None
    step: int = 1

    def contains(self, value: Any) -> bool:
        if type(value) is not int or value % self.step:
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def count(self) -> int:
        if self.low is None or self.high is None:
            raise Uncountable("it allows unlimited integers; give a minimum and a maximum")
        return max(0, self.high // self.step - -(-self.low // self.step) + 1)

    def both(self, other: IntegerValues) -> IntegerValues:
        lows = [each for each in (self.low, other.low) if each is not None]
        highs = [each for each in (self.high, other.high) if each is not None]
        return IntegerValues(max(lows, default=None), min(highs, default=None), lcm(self.step, other.step))


@dataclass(frozen=True)
class NumberValues:
    """All numbers."""

    def contains(self, value: Any) -> bool:
        return type(value) in (int, float)

    def count(self) -> int:
        raise Uncountable("a number has too many values; give an integer with bounds, or an enum")


@dataclass(frozen=True)
class StringValues:
    """Strings."""

    matched: MatchingTexts

    def contains(self, value: Any) -> bool:
        return isinstance(value, str) and self.matched.contains(value)

    def count(self) -> int:
        if self.matched.most is None and not self.matched.patterns:
            raise Uncountable("it allows unlimited strings; give an enum, or a maximum length")
        return self.matched.count()


@dataclass(frozen=True)
class ArrayValues:
    """Arrays of `least` to `most` items (None: unlimited): those of `first`, one per place, then `items`. `unique`: no
    two items are equal."""

    first: tuple[Values, ...]
    items: Values
    least: int
    most: int | None
    unique: bool

    def contains(self, value: Any) -> bool:
        if not isinstance(value, list) or len(value) < self.least or (self.most is not None and len(value) > self.most):
            return False
        if self.unique and len({canonical(each) for each in value}) < len(value):
            return False
        return all(contains(self._at(place), each) for place, each in enumerate(value))

    def count(self) -> int:
        ends = self._ends()
        if self.unique and self.first:
            raise Uncountable("an array with uniqueItems and prefixItems cannot be counted")
        total = 0
        ways = 1
        items = count(self.items) if ends is None or ends > len(self.first) else 0
        if ends is None and items and not self.unique:
            raise Uncountable("it allows unlimited arrays; give a maximum number of items")
        for length in range(self._last(ends, items) + 1):
            total += ways if length >= self.least else 0
            here = count(self.first[length]) if length < len(self.first) else items
            ways = _bounded(ways * (max(0, items - length) if self.unique else here))
            if not ways:
                break
        return _bounded(total)

    def both(self, other: ArrayValues) -> ArrayValues:
        length = max(len(self.first), len(other.first))
        first = tuple(intersection(self._at(place), other._at(place)) for place in range(length))
        most = min((each for each in (self.most, other.most) if each is not None), default=None)
        least, unique = max(self.least, other.least), self.unique or other.unique
        return ArrayValues(
            first=first, items=intersection(self.items, other.items), least=least, most=most, unique=unique
        )

    def _at(self, place: int) -> Values:
        return self.first[place] if place < len(self.first) else self.items

    def _ends(self) -> int | None:
        """The maximum number of items, or None if it is not given."""
        return len(self.first) if not self.items and self.most is None else self.most

    def _last(self, ends: int | None, items: int) -> int:
        last = items if self.unique else len(self.first)
        last = last if ends is None else min(ends, last) if self.unique else ends
        if last > LISTED:
            raise Uncountable(f"arrays of more than {LISTED} items are not counted")
        return last


@dataclass(frozen=True)
class ObjectValues:
    """Objects with these keys and no others: for each key its values, and whether it is required."""

    keys: tuple[tuple[str, tuple[Values, bool]], ...]

    def contains(self, value: Any) -> bool:
        known = dict(self.keys)
        if not isinstance(value, dict) or not value.keys() <= known.keys():
            return False
        return all(contains(values, value[key]) if key in value else not needed for key, (values, needed) in self.keys)

    def count(self) -> int:
        total = 1
        for _, (values, needed) in self.keys:
            total = _bounded(total * (count(values) + (not needed)))
        return total

    def both(self, other: ObjectValues) -> ObjectValues:
        ours, theirs = dict(self.keys), dict(other.keys)
        none: tuple[Values, bool] = ((), False)
        met = {}
        for key in dict.fromkeys((*ours, *theirs)):
            (values, needed), (others, wanted) = ours.get(key, none), theirs.get(key, none)
            met[key] = intersection(values, others), needed or wanted
        return ObjectValues(tuple(sorted(met.items())))


Kind = EnumeratedValues | IntegerValues | NumberValues | StringValues | ArrayValues | ObjectValues
Values = tuple[Kind, ...]
"""The union of the values of all these kinds."""


def contains(values: Values, value: Any) -> bool:
    """Whether a JSON value, as returned by `json.loads`, is one of them. Raises `Uncountable` if that is unknown."""
    with _counting():
        return any(each.contains(value) for each in values)


def count(values: Values) -> int:
    """The number of different values. Raises `Uncountable` if it is unknown."""
    with _counting():
        return _Union().count(values)


def intersection(ours: Values, theirs: Values) -> Values:
    """The values that are in both."""
    met = [_met(one, other) for one in ours for other in theirs]
    return tuple(dict.fromkeys(each for each in met if each is not None))


def admitted_values(schema: Mapping[str, Any]) -> Values:
    """The values that a JSON schema admits. Raises `Uncountable` if they cannot be counted."""
    with _counting():
        return _compiled(json.dumps(schema, sort_keys=True))


@contextmanager
def _counting() -> Iterator[None]:
    """A context in which any error of a schema becomes `Uncountable`: a record may have anything in its place."""
    try:
        yield
    except Uncountable:
        raise
    except RecursionError:
        raise Uncountable("the schema is nested too deeply to be counted") from None
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:  # any of these: it is not a schema
        raise Uncountable(f"the schema is not usable: {type(error).__name__}") from None


@lru_cache(maxsize=256)
def _compiled(schema: str) -> Values:
    whole = json.loads(schema)
    return _Reader(whole).values(whole)


class _Union:
    """Counts alternatives: for each one its values minus those that it shares with the ones before it."""

    def __init__(self) -> None:
        self._steps = 0

    def count(self, values: Values) -> int:
        """The number of different values in total."""
        self._steps += len(values)
        if self._steps > MOST_STEPS:
            raise Uncountable("its alternatives overlap too much to be counted")
        values = _folded(values)
        total = 0
        for place, each in enumerate(values):
            shared = intersection((each,), values[:place])
            total += each.count() - (self.count(shared) if shared else 0)
        return _bounded(total)


def _folded(values: Values) -> Values:
    """Alternatives without redundant ones. All listed values are merged into one list."""
    others = tuple(dict.fromkeys(each for each in values if not isinstance(each, EnumeratedValues)))
    texts = frozenset().union(*(each.texts for each in values if isinstance(each, EnumeratedValues)))
    left = frozenset(text for text in texts if not contains(others, json.loads(text)))
    return (*([EnumeratedValues(left)] if left else []), *others)


def _met(one: Kind, other: Kind) -> Kind | None:
    """The values that are in both. None if there are none, or the kinds differ."""
    if isinstance(other, EnumeratedValues) and not isinstance(one, EnumeratedValues):
        one, other = other, one
    if isinstance(one, EnumeratedValues):
        left = frozenset(text for text in one.texts if other.contains(json.loads(text)))
        return EnumeratedValues(left) if left else None
    if isinstance(one, NumberValues) or isinstance(other, NumberValues):
        both = other if isinstance(one, NumberValues) else one
        return both if isinstance(both, IntegerValues | NumberValues) else None
    return _same(one, other)


def _same(one: Kind, other: Kind) -> Kind | None:
    """The same for two of the same kind."""
    if isinstance(one, IntegerValues) and isinstance(other, IntegerValues):
        return one.both(other)
    if isinstance(one, StringValues) and isinstance(other, StringValues):
        return StringValues(one.matched.both(other.matched))
    if isinstance(one, ArrayValues) and isinstance(other, ArrayValues):
        return one.both(other)
    if isinstance(one, ObjectValues) and isinstance(other, ObjectValues):
        return one.both(other)
    return None


def _bounded(number: int) -> int:
    """The number. Raises `Uncountable` if it is too large."""
    if number.bit_length() > LARGEST:
        raise Uncountable(f"it has more than 2^{LARGEST} values")
    return number


ALL: dict[str, Values] = {
    "null": (EnumeratedValues(frozenset({"null"})),),
    "boolean": (EnumeratedValues(frozenset({"false", "true"})),),
    "number": (NumberValues(),),
}


class _Reader:
    """Reads the values of one schema."""

    def __init__(self, whole: Mapping[str, Any]) -> None:
        self._whole = whole
        self._known: dict[str, Values] = {}
        self._inside: set[str] = set()

    def values(self, schema: Any) -> Values:
        """The values of a schema: those that all its parts admit."""
        if schema is False:
            return ()
        if not isinstance(schema, Mapping):
            raise Uncountable("a schema that admits everything has unlimited values")
        said = {key: value for key, value in schema.items() if key not in SAYS_NOTHING}
        parts = [*self._joined(said), *self._plain(said)]
        if not parts:
            raise Uncountable("a schema without a type admits everything; give a type, or an enum")
        met = parts[0]
        for part in parts[1:]:
            met = intersection(met, part)
        return met

    def _joined(self, said: Mapping[str, Any]) -> Iterable[Values]:
        if "const" in said:
            yield (_listed([said["const"]]),)
        if "enum" in said:
            yield (_listed(said["enum"]),)
        if "$ref" in said:
            yield self._named(said["$ref"])
        if "anyOf" in said:
            yield tuple(kind for each in said["anyOf"] for kind in self.values(each))
        if "oneOf" in said:
            yield self._exactly_one([self.values(each) for each in said["oneOf"]])
        yield from (self.values(each) for each in said.get("allOf", ()))

    def _exactly_one(self, ways: Sequence[Values]) -> Values:
        """The values of exactly one of these alternatives. Raises `Uncountable` if some have values in common."""
        for one, other in combinations(ways, 2):
            if any(_some(shared) for shared in intersection(one, other)):
                raise Uncountable("oneOf with schemas that share values cannot be counted; use anyOf")
        return tuple(kind for way in ways for kind in way)

    def _named(self, name: Any) -> Values:
        """The values that a reference refers to."""
        place, _, key = str(name).removeprefix("#/").partition("/")
        there = self._whole.get(place, {}) if place in ("$defs", "definitions") else {}
        if key not in there or name in self._inside:
            what = "refers to itself" if name in self._inside else "has a reference that leads nowhere"
            raise Uncountable(f"a schema that {what} cannot be counted")
        if name not in self._known:
            self._inside.add(name)
            self._known[name] = self.values(there[key])
            self._inside.discard(name)
        return self._known[name]

    def _plain(self, said: Mapping[str, Any]) -> Iterable[Values]:
        """The values of the types that a schema names."""
        given = said.get("type")
        types = given if isinstance(given, list) else [] if given is None else [given]
        own = said.keys() - JOINED
        known = {key for each in types for key in OF_TYPE.get(each, ())}
        if unknown := sorted(own - known):
            raise Uncountable(
                f"it has the keyword {unknown[0]!r}{'' if types else ' without a type'}, which cannot be counted"
            )
        if any(each not in OF_TYPE for each in types):
            raise Uncountable("it has a type that JSON does not define")
        if types:
            yield tuple(kind for each in types for kind in self._of_type(each, said))

    def _of_type(self, name: str, said: Mapping[str, Any]) -> Values:
        if name in ALL:
            return ALL[name]
        if name == "integer":
            return (_whole(said),)
        if name == "string":
            patterns = (said["pattern"],) if "pattern" in said else ()
            return (StringValues(MatchingTexts(patterns, said.get("minLength", 0), said.get("maxLength"))),)
        return (self._array(said),) if name == "array" else (self._object(said),)

    def _array(self, said: Mapping[str, Any]) -> ArrayValues:
        first = tuple(self.values(each) for each in said.get("prefixItems", ()))
        most = said.get("maxItems")
        all_first = most is not None and most <= len(first)
        items = () if all_first else self.values(said.get("items", True))
        return ArrayValues(
            first=first,
            items=items,
            least=said.get("minItems", 0),
            most=most,
            unique=bool(said.get("uniqueItems", False)),
        )

    def _object(self, said: Mapping[str, Any]) -> ObjectValues:
        if said.get("additionalProperties", True) is not False:
            raise Uncountable("it allows unlimited object keys; set additionalProperties to false")
        needed, known = set(said.get("required", ())), said.get("properties", {})
        keys = {key: (self.values(each), key in needed) for key, each in known.items()}
        keys |= {key: ((), True) for key in needed if key not in known}
        return ObjectValues(tuple(sorted(keys.items())))


def _listed(values: Iterable[Any]) -> EnumeratedValues:
    return EnumeratedValues(frozenset(map(canonical, values)))


def _some(kind: Kind) -> bool:
    """Whether it has any value. True if unknown."""
    try:
        return count((kind,)) > 0
    except Uncountable:
        return True


def _whole(said: Mapping[str, Any]) -> IntegerValues:
    """The integers within the bounds of a schema."""
    lows = [ceil(said["minimum"])] if "minimum" in said else []
    lows += [floor(said["exclusiveMinimum"]) + 1] if "exclusiveMinimum" in said else []
    highs = [floor(said["maximum"])] if "maximum" in said else []
    highs += [ceil(said["exclusiveMaximum"]) - 1] if "exclusiveMaximum" in said else []
    step = said.get("multipleOf", 1)
    if step != int(step) or step < 1:
        raise Uncountable("integers whose multipleOf is not a positive whole number cannot be counted")
    return IntegerValues(max(lows, default=None), min(highs, default=None), int(step))
