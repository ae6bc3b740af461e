"""Counts of the values that a schema admits, compared with trying all values of a small world with another
validator."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from enum import Enum
from itertools import product
from typing import Annotated, Any, Literal

import llguidance.numpy
import pytest
from jsonschema import Draft202012Validator
from llguidance import LLMatcher, LLTokenizer
from pydantic import BaseModel, Field, create_model

from agentcho.protocol.json_schema import closed
from agentcho.protocol.regex_cardinality import ALPHABET, MatchingTexts, Uncountable
from agentcho.protocol.schema_cardinality import admitted_values, canonical, contains, count

ATOMS: list[Any] = [None, True, False, 0, 1, 2, 3, "", "a", "b", "ab", "ba", "aa"]
FEW: list[Any] = [None, True, 0, 1, "a", "ab"]
WORLD: list[Any] = [
    *ATOMS,
    *([*items] for length in range(3) for items in product(FEW, repeat=length)),
    *({"a": one} for one in FEW),
    *({"b": one} for one in FEW),
    *({"a": one, "b": other} for one in FEW for other in FEW),
    {},
]
"""Every value that one of the schemas below can have, and many that none has; all are distinct."""


def brute(schema: dict[str, Any]) -> set[str]:
    valid = Draft202012Validator(schema)
    return {canonical(value) for value in WORLD if valid.is_valid(value)}


def atom(rng: random.Random, values: list[Any]) -> dict[str, Any]:
    """A schema of single values, all of which are among `values`."""
    texts = [value for value in values if isinstance(value, str)]
    low, high = sorted(rng.choices([value for value in values if type(value) is int], k=2))
    return rng.choice(
        [
            {"enum": rng.sample(values, rng.randint(1, 3))},
            {"const": rng.choice(values)},
            {"type": "integer", "minimum": low, "maximum": high},
            {"type": "integer", "exclusiveMinimum": low - 1, "exclusiveMaximum": high + 1, "multipleOf": 1},
            {"type": ["null", "string"], "enum": [None, rng.choice(texts)]},
            {"type": "string", "enum": texts},
            {"type": "string", "pattern": rng.choice(["^ab?$", "^a(b|)$", "^(?:a|ab)$"])},
        ]
    )


def schema(rng: random.Random, depth: int = 2) -> dict[str, Any]:
    """A schema of arrays and objects of single values, or of alternatives of these."""
    if depth == 2 and rng.random() < 0.5:
        way = rng.choice(["anyOf", "anyOf", "allOf", "oneOf"])
        return {way: [schema(rng, 1) for _ in range(rng.randint(2, 3))]}
    kind = rng.choice(["atom", "array", "tuple", "object"])
    if kind == "atom":
        return atom(rng, ATOMS)
    if kind == "array":
        shape = {"minItems": rng.randint(0, 1), "maxItems": rng.randint(0, 2)}
        return {"type": "array", "items": atom(rng, FEW), **shape, "uniqueItems": rng.random() < 0.3}
    if kind == "tuple":
        first = [atom(rng, FEW) for _ in range(rng.randint(1, 2))]
        return {"type": "array", "prefixItems": first, "items": atom(rng, FEW), "minItems": 1, "maxItems": 2}
    keys = rng.sample(["a", "b"], rng.randint(1, 2))
    needed = [key for key in keys if rng.random() < 0.5]
    known = {key: atom(rng, FEW) for key in keys}
    return {"type": "object", "properties": known, "required": needed, "additionalProperties": False}


def test_a_schema_has_as_many_values_as_one_finds_by_trying_all() -> None:
    rng = random.Random(19)
    counted = overlapping = 0
    while counted < 100:
        given = schema(rng)
        try:
            number = count(values := admitted_values(given))
        except Uncountable:  # oneOf with common values, and tuples with different items
            overlapping += 1
            continue
        found = brute(given)
        assert number == len(found), given
        assert {canonical(value) for value in WORLD if contains(values, value)} == found, given
        counted += 1
    assert overlapping < counted / 4


def texts(letters: str, most: int) -> Iterator[str]:
    for length in range(most + 1):
        yield from map("".join, product(letters, repeat=length))


def pattern(rng: random.Random, depth: int = 3) -> str:
    if not depth:
        return rng.choice(["a", "b", "[ab]", "[^a]", "[b-c]", r"[\w]", "a"])
    inside = pattern(rng, depth - 1)
    other = pattern(rng, depth - 1)
    how = rng.choice(["{}{}", "(?:{}|{})", "({}){{1,2}}{}", "(?:{})*{}", "(?:{})?{}", "({}|{}|)", "(?:{})+{}"])
    return how.format(inside, other)


def test_a_pattern_has_as_many_texts_as_one_finds_by_trying_all() -> None:
    rng = random.Random(19)
    for _ in range(30):
        given = rng.choice(["^{}$", "^{}", "{}$", "{}", "^a|{}", "{}|^b$"]).format(pattern(rng, rng.randint(0, 3)))
        of_three = MatchingTexts((given, "^[abc]*$"), 0, 4)
        found = [text for text in texts("abc", 4) if re.search(given, text)]
        assert of_three.count() == len(found), given
        assert all(of_three.contains(text) for text in found)


def test_texts_without_a_pattern_are_of_all_letters_that_there_are() -> None:
    assert sum(not 0xD800 <= letter <= 0xDFFF for letter in range(0x110000)) == ALPHABET
    assert count(admitted_values({"type": "string", "maxLength": 2})) == 1 + ALPHABET + ALPHABET**2
    assert not contains(admitted_values({"type": "string", "maxLength": 1}), "\ud800")
    assert MatchingTexts(("^.$",)).count() == ALPHABET - 1, "a line break is no letter for a dot"


class Colour(Enum):
    """Two of them."""

    red = "red"
    blue = "blue"


class Bid(BaseModel):
    """An offer: 101 of them."""

    kind: Literal["bid"]
    amount: Annotated[int, Field(ge=0, le=100)]


class Fold(BaseModel):
    """One, with the kind named or left to its default."""

    kind: Literal["fold"] = "fold"


CASES: list[tuple[Any, int]] = [
    (bool, 2),
    (Colour, 2),
    (Literal["a", "b", "c"], 3),
    (Literal[1, True], 2),
    (Annotated[int, Field(ge=-3, lt=3)], 6),
    (Annotated[int, Field(ge=1, le=100, multiple_of=7)], 14),
    (Bid | Fold, 103),
    (Annotated[Bid | Fold, Field(discriminator="kind")], 103),
    (bool | Literal[True, "x"], 3),
    (tuple[bool, Colour], 4),
    (Annotated[list[bool], Field(max_length=3)], 15),
    (Annotated[set[Colour], Field()], 5),
    (Annotated[str, Field(pattern=r"^\d{4}$")], 10_000),
    (Annotated[str, Field(pattern=r"^[a-z]+$", max_length=3)], 26 + 26**2 + 26**3),
    (Annotated[str, Field(pattern=r"^[a-z]{1,2}$", min_length=2)], 26**2),
    (bool | None, 3),
]


@pytest.mark.parametrize(("field", "values"), CASES)
def test_what_pydantic_writes_is_counted(field: Any, values: int) -> None:
    needed = create_model("Needed", it=(field, ...))
    optional = create_model("Optional", it=(field | None, None))
    assert count(admitted_values(closed(needed.model_json_schema()))) == values
    with_none = values if field == (bool | None) else values + 1
    assert count(admitted_values(closed(optional.model_json_schema()))) == with_none + 1, "null, or not there at all"


class Tree(BaseModel):
    """One of itself."""

    left: Tree | None = None


UNCOUNTABLE = [str, int, float, dict[str, bool], list[bool], Tree, Any, Annotated[int, Field(ge=0)]]
UNCOUNTABLE += [Annotated[str, Field(pattern="^a*$")], Annotated[float, Field(ge=0, le=1)], tuple[bool, ...]]


@pytest.mark.parametrize("field", UNCOUNTABLE)
def test_what_has_no_end_is_not_counted(field: Any) -> None:
    model = create_model("Needed", it=(field, ...))
    with pytest.raises(Uncountable):
        count(admitted_values(closed(model.model_json_schema())))


STRANGE: list[dict[str, Any]] = [
    {},
    {"not": {"type": "null"}},
    {"type": "boolean", "if": True},
    {"type": "string", "format": "date"},
    {"type": "string", "maxLength": 1 << 20},
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 1 << 20},
    {"type": "integer", "minimum": "a", "maximum": 3},
    {"type": "integer", "minimum": 0, "maximum": 3, "multipleOf": 0.5},
    {"$ref": "https://example.org/schema"},
    {"$ref": "#"},
    {"enum": [float("nan")]},
    {"type": "string", "pattern": "(?=a)", "maxLength": 3},
    {"type": "string", "pattern": "^(a{999}){999}$"},
    {"type": "object", "properties": {"a": {"type": "null"}}},
    {"type": "decimal"},
    {"type": []},
    {"oneOf": [{"type": "boolean"}, {"const": True}]},
    {"type": "string", "pattern": 5},
    {"type": "string", "pattern": [1], "minLength": 1},
    {"type": "string", "maxLength": "x"},
    {"type": "string", "maxLength": 1.5},
    {"type": "string", "minLength": -5, "maxLength": 4},
    {"type": "string", "pattern": f"^{'(' * 400}a{')' * 400}$"},
]


@pytest.mark.parametrize("given", STRANGE, ids=lambda each: json.dumps(each)[:40])
def test_what_is_not_understood_is_not_counted(given: dict[str, Any]) -> None:
    with pytest.raises(Uncountable):
        count(admitted_values(given))


def test_a_value_is_spelled_in_one_way() -> None:
    assert canonical(json.loads('{ "b": "\\u0061", "a": [1e0 ] }')) == '{"a":[1.0],"b":"a"}'
    whole = admitted_values({"type": "integer", "minimum": 0, "maximum": 1})
    assert not any(contains(whole, value) for value in (1.0, True, "1", -0.0, 2))
    assert contains(whole, json.loads("-0"))


def said_at_random(given: dict[str, Any], rng: random.Random) -> str:
    """A random text that the grammar of sampling admits, byte by byte."""
    letters = LLTokenizer("byte")
    matcher = LLMatcher(letters, LLMatcher.grammar_from_json_schema(given, overrides={"whitespace_flexible": False}))
    assert not matcher.is_error(), matcher.get_error()
    said = bytearray()
    while not matcher.is_stopped():
        mask = llguidance.numpy.allocate_token_bitmask(1, letters.vocab_size)
        llguidance.numpy.fill_next_token_bitmask(matcher, mask, 0)
        allowed = [id for id in range(letters.vocab_size) if mask[0, id // 32] >> (id % 32) & 1]
        id = rng.choice(allowed)
        said += b"" if id == letters.eos_token else bytes([id])
        matcher.consume_token(id)
    return said.decode()


@pytest.mark.parametrize("field", [field for field, _ in CASES if "set" not in str(field)])
def test_what_sampling_can_say_is_among_what_is_counted(field: Any) -> None:
    given = closed(create_model("Needed", it=(field, ...)).model_json_schema())
    values, rng = admitted_values(given), random.Random(19)
    said = [said_at_random(given, rng) for _ in range(12)]
    assert all(contains(values, json.loads(text)) for text in said)
    assert len({canonical(json.loads(text)) for text in said}) <= count(values)
