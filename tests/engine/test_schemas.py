"""JSON of a schema, token by token: it fits into any accepted number of tokens, and ample room changes nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, cast

import jsonschema
import llguidance.numpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher
from pydantic import UUID4, TypeAdapter

import agentcho
from agentcho.errors import CallFailed, RequestError
from agentcho.protocol.call import Sampling
from agentcho.protocol.tools import AnswerForm
from agentcho.runner.sampling import endings
from agentcho.runner.sampling.constraint import Constraints, Grammars, JsonConstraint
from agentcho.runner.sampling.endings import DocumentEndings, LearnedStates
from agentcho.runner.sampling.grammar import fault, grammar
from agentcho.runner.sampling.token_bytes import TokenBytes

from .templates import tokenizer

Schema = dict[str, Any]
AMPLE = 4000


def stop() -> int:
    return int(str(tokenizer("llama3").convert_tokens_to_ids("<|eot_id|>")))


@cache
def spelling() -> TokenBytes:
    words = tokenizer("llama3")
    return TokenBytes(words, len(words), stop())


@cache
def grammars() -> Grammars:
    words = tokenizer("llama3")
    return Grammars(words, len(words), stop())


def test_a_tokenizer_that_knows_more_ids_than_the_vocabulary_has_is_used() -> None:
    words = copy.deepcopy(tokenizer("llama3"))
    size = len(words)
    words.add_special_tokens({"additional_special_tokens": [f"<image_{number}>" for number in range(40)]})
    assert len(words) > size
    more, plain = Grammars(words, size, stop()), grammars()
    schema = {"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"], "additionalProperties": False}
    one, other = (each.json(schema, 40) for each in (more, plain))
    assert one.allowed.size == size
    assert one.allowed.tolist() == other.allowed.tolist()


def test_a_grammar_that_gives_up_fails_the_call_and_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = grammars().json({"type": "string"}, 40)
    token = made.allowed.tolist()[0]

    class Tired:
        def __getattr__(self, name: str) -> Any:
            return getattr(matcher, name)

        def is_error(self) -> bool:
            return True

        def get_error(self) -> str:
            return "too many states"

    matcher = made._matcher
    monkeypatch.setattr(made, "_matcher", Tired())
    with pytest.raises(CallFailed, match=r"too expensive to follow \(too many states\)"):
        made.take(token, 40)


@dataclass
class Said:
    """A text: its tokens, whether it was completed, and how many tokens differ from those drawn."""

    tokens: list[int]
    ended: bool
    other: int = 0

    @property
    def value(self) -> Any:
        return json.loads(b"".join(map(spelling().of, self.tokens)))


MARKS = (b'"', b"]", b"}", b'"]', b'"}', b",", b'",', b'","')


def drawn(allowed: list[int], random: Random, hasty: bool) -> int:
    """Draw a token; with `hasty`, one of the punctuation marks half of the time, if any is allowed."""
    marks = [id for id in allowed if spelling().of(id) in MARKS or id == spelling().stop]
    return random.choice(marks) if hasty and marks and random.random() < 0.5 else random.choice(allowed)


def say(constraint: Any, most: int, seed: int, hasty: bool = True) -> Said:
    """Build a text from drawn tokens, as a decode does."""
    random, said = Random(seed), Said([], ended=False)
    while len(said.tokens) < most:
        wish = drawn(constraint.allowed.tolist(), random, hasty)
        token = constraint.take(wish, most - len(said.tokens))
        said.other += token != wish
        if token != spelling().stop:
            said.tokens.append(token)
        if token == spelling().stop or constraint.done:
            return Said(said.tokens, ended=True, other=said.other)
    return said


class Free:
    """The same grammar without a token limit."""

    def __init__(self, schema: Schema) -> None:
        self._matcher = LLMatcher(spelling().table, grammar(schema))

    @property
    def allowed(self) -> Any:
        mask = llguidance.numpy.allocate_token_bitmask(1, spelling().size)
        llguidance.numpy.fill_next_token_bitmask(self._matcher, mask, 0)
        return np.unpackbits(mask.view(np.uint8), bitorder="little")[: spelling().size].nonzero()[0]

    @property
    def done(self) -> bool:
        return self._matcher.is_stopped() or self.allowed.tolist() == [spelling().stop]

    def take(self, token: int, left: int) -> int:
        if token != spelling().stop:
            self._matcher.consume_token(token)
        return token


def fits(schema: Schema, value: Any) -> bool:
    checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker(["email", "ipv4"]))
    return bool(checker.is_valid(value))


POSITIVE = {"type": "number", "exclusiveMinimum": 0}
LEAVES: dict[str, Schema] = {
    "positive": POSITIVE,
    "probability": {**POSITIVE, "exclusiveMaximum": 1},
    "email": {"type": "string", "format": "email"},
    "duration": {"type": "string", "format": "duration"},
    "date": {"type": "string", "format": "date"},
    "date-time": {"type": "string", "format": "date-time"},
    "uuid": {"type": "string", "format": "uuid"},
    "uri": {"type": "string", "format": "uri"},
    "ipv4": {"type": "string", "format": "ipv4"},
    "digit": {"type": "string", "pattern": "\\d"},
    "words": {"type": "string", "pattern": "^\\w+ \\w+$"},
    "phone": {"type": "string", "pattern": "^(\\([0-9]{3}\\) )?[0-9]{3}-[0-9]{4}$"},
    "plate": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{6}$"},
    "quoted": {"type": "string", "pattern": '^<"[äöü]{2}\\\\">$'},
    "either": {"type": "string", "pattern": "foo|bar"},
    "somewhere": {"type": "string", "pattern": "[A-Za-z]+\\s[A-Z]{2}"},
    "dated": {"type": "string", "pattern": "\\d{4}-\\d{2}-\\d{2}"},
    "letter": {"type": "string", "pattern": "^Dear .*, yours$"},
    "long": {"type": "string", "pattern": "(one|two) [0-9]", "minLength": 12},
    "ways": {"type": "string", "pattern": "^(foo|bar)+baz?$"},
    "short": {"type": "string", "minLength": 3, "maxLength": 9},
    "multiple": {"type": "number", "multipleOf": 0.5, "minimum": 12.2},
    "narrow": {"type": "number", "minimum": 0.12345, "maximum": 0.12346},
    "word": {"enum": ["low", "lower", "lowest"]},
    "truth": {"type": "boolean"},
    "nothing": {"type": "null"},
}


HARD = ("either", "somewhere", "dated", "letter", "long", "uri", "digit", "duration")
"""Kinds in which few short endings follow most random tokens, so each token takes a long search."""


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in HARD)) for kind in LEAVES])
@pytest.mark.slow
def test_a_value_a_list_of_it_and_a_list_of_such_lists_fit_in_few_tokens(kind: str) -> None:
    for schema in shapes(kind):
        few = fewest(schema)
        assert few < 200
        for most in (few, few + 1, few + 7):
            assert_fits(schema, most)


@pytest.mark.parametrize("kind", HARD)
def test_a_value_and_a_list_of_it_fit_in_the_fewest_tokens(kind: str) -> None:
    few = [fewest(schema) for schema in shapes(kind)]
    assert max(few) < 200
    for schema, most in zip(shapes(kind)[:2], few, strict=False):
        assert_fits(schema, most)


def shapes(kind: str) -> tuple[Schema, ...]:
    """The value alone, a list, a list of lists, and a field."""
    several = {"type": "array", "items": LEAVES[kind], "minItems": 2}
    field = {"type": "object", "properties": {"a": LEAVES[kind]}, "required": ["a"], "additionalProperties": False}
    return LEAVES[kind], several, {**several, "items": several}, field


def assert_fits(schema: Schema, most: int) -> None:
    said = say(grammars().json(schema, most), most, most, hasty=False)
    assert fits(schema, said.value), said.value


def fewest(schema: Schema) -> int:
    """The smallest number of tokens with which an answer is accepted."""
    most = AMPLE
    while True:
        try:
            ending = grammars().json(schema, most).ending
        except RequestError:
            return most + 1
        assert ending
        most = len(ending) - 1
        if most == 0:
            return 1


def test_too_few_tokens_are_told_with_the_number_that_does() -> None:
    told = (
        r"shortest answer found for json_schema takes (\d+) tokens, but max_tokens is 2; raise max_tokens to \1 or more"
    )
    with pytest.raises(RequestError, match=told):
        grammars().json(LEAVES["date"], 2)


def schemas() -> st.SearchStrategy[Schema]:
    return st.recursive(st.sampled_from([*LEAVES.values()]), _wider, max_leaves=4)


def _wider(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    lists = st.builds(_list, inner, st.integers(0, 3), st.none() | st.integers(3, 6))
    objects = st.builds(_object, st.lists(inner, min_size=1, max_size=3), st.sets(st.integers(0, 2)))
    return lists | objects | st.builds(lambda *ways: {"anyOf": [*ways]}, inner, inner)


def _list(item: Schema, least: int, most: int | None) -> Schema:
    return {"type": "array", "items": item, "minItems": least} | ({} if most is None else {"maxItems": most})


def _object(fields: list[Schema], needed: set[int]) -> Schema:
    named = {f"key{place}": each for place, each in enumerate(fields)}
    required = [name for place, name in enumerate(named) if place in needed]
    return {"type": "object", "properties": named, "required": required, "additionalProperties": False}


@settings(max_examples=25, deadline=None)
@given(schemas(), st.integers(0, 9999), st.integers(0, 30))
def test_whatever_the_schema_it_fits_however_few_tokens_are_left(schema: Schema, seed: int, more: int) -> None:
    ending = grammars().json(schema, AMPLE).ending
    assert ending is not None
    most = max(1, len(ending)) + more
    said = say(grammars().json(schema, most), most, seed)
    assert fits(schema, said.value), said.value


@settings(max_examples=25, deadline=None)
@given(schemas(), st.integers(0, 9999))
@pytest.mark.slow
def test_with_room_to_spare_it_is_what_it_would_be_without_a_bound(schema: Schema, seed: int) -> None:
    free = say(Free(schema), AMPLE, seed)
    if free.ended:
        bound = say(grammars().json(schema, len(free.tokens) + 60), len(free.tokens) + 60, seed)
        assert bound.tokens == free.tokens
        assert bound.other == 0


TREE: Schema = {
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "sizes": {"type": "array", "items": POSITIVE},
                "next": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]},
            },
            "required": ["name", "sizes", "next"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/tree",
}


def test_what_may_hold_itself_is_brought_to_an_end() -> None:
    few = fewest(TREE)
    for most in range(few, few + 90, 6):
        assert fits(TREE, say(grammars().json(TREE, most), most, most).value)


def test_a_number_that_needs_certain_digits_is_not_broken_off_while_there_is_room() -> None:
    schema = {"type": "array", "items": {"type": "integer", "multipleOf": 97, "minimum": 5}}
    for seed in range(4):
        assert say(grammars().json(schema, 60), 60, seed).tokens[:20] == say(Free(schema), 60, seed).tokens[:20]


@pytest.mark.parametrize("kind", ["positive", "email", "words", "short"])
@pytest.mark.slow
def test_lists_are_as_long_as_without_a_bound(kind: str) -> None:
    schema = {"type": "array", "items": LEAVES[kind]}
    lengths = [len(say(grammars().json(schema, AMPLE), AMPLE, seed).value) for seed in range(30)]
    assert lengths == [len(say(Free(schema), AMPLE, seed).value) for seed in range(30)]
    assert max(lengths) > 3


ENDLESS: Schema = {"type": "object", "properties": {"in": {"$ref": "#/$defs/box"}}, "required": ["in"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": POSITIVE, "minItems": 100},
        {"type": "string", "minLength": 2000, "maxLength": 3000},
        {"type": "array", "items": {"type": "array", "items": LEAVES["email"], "minItems": 12}, "minItems": 12},
        {"type": "string", "pattern": "^(a.{300}|b.{400}|[c-z]{200})$"},
        {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 7919}}, "required": ["a"]},
        {"type": "string", "pattern": "^[ab]*a[ab]{9}$"},
    ],
)
def test_a_search_tries_no_more_states_than_it_may(schema: Schema) -> None:
    document = DocumentEndings(grammar(schema)).document()
    assert any(document.endings())
    assert document.steps <= endings.STEPS
    begun = DocumentEndings(grammar(schema)).document()
    assert [*begun.endings()]
    assert begun.steps <= endings.STEPS


def test_the_bound_of_a_search_is_the_one_that_the_page_says() -> None:
    page = (Path(agentcho.__file__).parents[1] / "docs" / "serve.md").read_text()
    assert f"in at most {endings.STEPS:,} steps" in " ".join(page.split())


class Unsearched(DocumentEndings):
    """Endings whose search finds none."""

    def document(self) -> Any:
        return NoEnding()


class NoEnding:
    broken = False
    searches = 0
    learned = LearnedStates({}, {})

    def follow(self, said: bytes) -> None:
        pass

    def endings(self, behind: bytes = b"", thorough: bool = True) -> Iterator[bytes | None]:
        NoEnding.searches += 1
        yield from ()


def test_where_no_ending_is_found_what_is_drawn_stands_and_searches_become_rare() -> None:
    schema = {"type": "array", "items": LEAVES["words"]}
    made = grammars().json(schema, AMPLE)._compiled
    NoEnding.searches = 0
    constraint = JsonConstraint(type(made)(made.matcher, Unsearched(grammar(schema))), spelling(), AMPLE, 0)
    said = say(constraint, AMPLE, 3)
    assert said.tokens == say(Free(schema), AMPLE, 3).tokens
    assert said.other == 0
    assert NoEnding.searches < 15


def test_the_endings_of_a_schema_are_searched_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    schema: Schema = {"type": "array", "items": LEAVES["email"], "minItems": 3}
    few = fewest(schema)
    monkeypatch.setattr(DocumentEndings, "document", None)
    assert fewest(schema) == few


TWO_LENGTHS: Schema = {
    "type": "object",
    "properties": {
        "p": {"type": "string", "minLength": 9, "maxLength": 9},
        "q": {"type": "string", "minLength": 8, "maxLength": 10},
    },
    "additionalProperties": False,
}


def test_an_ending_does_not_depend_on_other_documents_of_its_schema() -> None:
    """Else it would tell an agent which property another agent's answer had, and where that one was ended."""

    def ended(of: DocumentEndings, said: bytes) -> bytes | None:
        document = of.document()
        document.follow(said)
        return next(document.endings())

    alone, shared = (DocumentEndings(grammar(TWO_LENGTHS)) for _ in range(2))
    assert ended(shared, b'{"p":"abc') is not None
    assert ended(shared, b'{"q":"abc') == ended(alone, b'{"q":"abc')


def test_documents_begin_alike_however_far_others_had_whole_ones_searched() -> None:
    compiled = grammars().json(TWO_LENGTHS, AMPLE)._compiled
    before = compiled.endings.document().learned
    assert [*compiled.whole()]
    assert compiled.endings.document().learned == before


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/box", "$defs": {"box": ENDLESS}},
        {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/box"}, "$defs": {"box": ENDLESS}},
        {"type": "object", "properties": {"again": {"$ref": "#"}}, "required": ["again"]},
    ],
)
def test_what_has_no_end_is_refused_as_that(schema: Schema) -> None:
    with pytest.raises(RequestError, match="it allows no finite document"):
        grammars().json(schema, AMPLE)


def test_an_endless_part_is_not_entered() -> None:
    schema = {"anyOf": [{"$ref": "#/$defs/box"}, {"type": "object", "maxProperties": 0}], "$defs": {"box": ENDLESS}}
    for seed in range(5):
        assert say(grammars().json(schema, 50), 50, seed).value == {}


class Framing:
    """The parts of a framing that constraints need."""

    content: Any = None

    @property
    def stops(self) -> frozenset[int]:
        return frozenset({spelling().stop})

    @property
    def end(self) -> int:
        return spelling().stop


UNKNOWN = ("uri-reference", "regex", "json-pointer", "iri", "int64", "byte", "phone", "path", "made up")


@pytest.mark.parametrize("named", UNKNOWN)
def test_a_format_that_is_not_known_says_nothing(named: str) -> None:
    schema: Schema = {"properties": {"format": {"type": "string", "format": named, "maxLength": 5}}}
    whole = schema | {"type": "object", "required": ["format"], "additionalProperties": False}
    assert len(say(grammars().json(whole, 60), 60, 1).value["format"]) <= 5
    assert schema["properties"]["format"]["format"] == named


def test_a_uuid_of_one_version_is_of_that_version() -> None:
    schema = TypeAdapter(UUID4).json_schema()
    said = say(grammars().json(schema, 60), 60, 1).value
    assert TypeAdapter(UUID4).validate_python(said)


def test_a_format_that_is_known_still_holds() -> None:
    assert fits(LEAVES["ipv4"], say(grammars().json(LEAVES["ipv4"], 60), 60, 2).value)


@pytest.mark.parametrize(
    ("part", "pointer", "lenient"),
    [
        ({"not": {"type": "string"}}, "#/properties/a~1b/items/not", None),
        ({"type": "array", "uniqueItems": True}, "#/properties/a~1b/items/uniqueItems", None),
        ({"type": "string", "pattern": "^(?!a)"}, "#/properties/a~1b/items/pattern", None),
        ({"$ref": "https://example.org/x"}, "#/properties/a~1b/items/$ref", None),
        ({"$ref": "#/$defs/odd"}, "#/$defs/odd/pattern", None),
        ({"$ref": "#/$defs/none"}, "#/properties/a~1b/items/$ref", "#/properties/a~1b/items/$ref"),
        ({"type": "strin"}, "#/properties/a~1b/items/type", "#/properties/a~1b/items/type"),
    ],
)
def test_what_is_at_fault_in_a_schema_is_told_by_its_place(part: Schema, pointer: str, lenient: str | None) -> None:
    fields = {"good": {"type": "integer"}, "a/b": {"type": "array", "items": part}}
    schema = {"type": "object", "properties": fields, "$defs": {"odd": {"type": "string", "pattern": "(?=a)"}}}
    found, less = fault(schema), fault(schema, lenient=True)
    assert found is not None
    assert found.pointer == pointer
    assert (less and less.pointer) == lenient
    with pytest.raises(RequestError, match="leave this out of the schema"):
        grammars().json(schema, AMPLE)


def test_what_nothing_fits_is_told_as_that_by_its_place() -> None:
    bounds = {"type": "integer", "minimum": 3, "maximum": 2}
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": bounds}, "required": ["b"]}}}
    found = fault(schema | {"required": ["a"]})
    assert found is not None
    assert found.hopeless
    assert found.pointer == "#/properties/a/properties/b"
    assert "minimum (3) is greater than maximum (2)" in found.why


def test_a_form_that_cannot_be_said_takes_no_other_down() -> None:
    odd, good = AnswerForm((7, 20), {"type": "strin"}), AnswerForm((7, 21), POSITIVE, (9,))
    constraints = Constraints(cast(Any, Framing()), tokenizer("llama3"), spelling().size)
    found = constraints.of(Sampling(), [odd, good])
    assert found is not None
    assert found.allowed.tolist() == [7]
    found.follow(7)
    assert found.only == 21
    with pytest.raises(RequestError, match="Invalid type"):
        constraints.of(Sampling(), [odd])


def test_tokens_spell_any_bytes_that_the_vocabulary_has() -> None:
    for spelt in (b'{"a": [1, 2.5]}', "äöü 東京".encode(), "ä".encode()[1:] + b'x"}'):
        found = spelling().tokens(spelt)
        assert found is not None
        assert b"".join(map(spelling().of, found)) == spelt
