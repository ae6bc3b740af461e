"""Decode options for answers that may or must be function calls."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator

from agentcho.engine.fake.toy_tokenizer import FakeFraming
from agentcho.engine.template import derive
from agentcho.engine.tools import CallPieces, ToolFormat
from agentcho.serve.request import MOST_CALLED_NAME, ChatRequest, QuotedMessage, ToolCall, ToolDefinition, Tools
from agentcho.serve.sharing.argument_validation import MOST, any_fits, fits
from agentcho.serve.sharing.request_prompt import (
    calls_in,
    conversation_of,
    cut_off,
    forms_of,
    prompt_of,
    samplings,
    speaker,
)
from agentcho.testing import FakeEngine
from tests.engine.templates import calling, tokenizer

ANSWER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PLAIN = ToolFormat(FakeFraming().content)
OWN = ToolFormat(FakeFraming().content, CallPieces('<call>{"name": "', tail="}</call>"))
CALL, OTHER, SAID = {"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}, {"city": "Bern"}


def taken(form: ToolFormat, choice: Any, answer: dict[str, Any] | None) -> list[bool] | None:
    """Which of three answers are permitted; None if all are."""
    request = ChatRequest(
        (), tools=Tools((ToolDefinition("f"), ToolDefinition("g")), choice, "f" if choice == "named" else None)
    )
    if answer is not None:
        request.options["json_schema"] = answer
    frames = SimpleNamespace(framing=SimpleNamespace(tools=form))
    schema = samplings(request, 9, cast(Any, frames))[0].json_schema
    forms = forms_of(request, cast(Any, frames))
    assert schema is None or not forms
    schemas = [form.schema for form in forms] + ([] if schema is None else [schema])
    valid = [Draft202012Validator(schema).is_valid for schema in schemas]
    return [any(is_valid(each) for is_valid in valid) for each in (CALL, OTHER, SAID)] if valid else None


@pytest.mark.parametrize("form", [PLAIN, OWN])
def test_a_call_that_must_be_or_may_be_is_json_that_is_read(form: ToolFormat) -> None:
    assert taken(form, "required", None) == [True, True, False]
    assert taken(form, "named", None) == [True, False, False]
    assert taken(form, "auto", ANSWER) == [True, True, True]
    assert taken(form, "none", ANSWER) == [False, False, True]
    assert taken(form, "none", None) is None


@pytest.mark.parametrize("form", [PLAIN, OWN])
def test_an_answer_that_may_be_a_call_or_one_of_some_texts_is_no_other(form: ToolFormat) -> None:
    content = FakeFraming().content
    frames = cast(Any, SimpleNamespace(framing=SimpleNamespace(tools=form, content=content)))
    request = ChatRequest((), {"choices": ["yes", "no"]}, tools=Tools((ToolDefinition("f"),)))
    assert [each.choices for each in samplings(request, 9, frames)] == [None]
    *calls, yes, no = forms_of(request, frames)
    assert [(content.decode(each.lead), each.schema) for each in (yes, no)] == [("yes", None), ("no", None)]
    assert calls == [*form.forms((ToolDefinition("f"),))]
    assert forms_of(ChatRequest((), request.options, tools=Tools((ToolDefinition("f"),), "none")), frames) == ()


@pytest.mark.parametrize("form", [PLAIN, OWN])
def test_a_call_is_left_to_the_model_whether_or_not_its_template_has_a_format(form: ToolFormat) -> None:
    assert taken(form, "auto", None) is None


GOOD = '{"name": "weather", "arguments": {"city": "Bern"}}'
WEATHER = ToolDefinition("weather", "", ANSWER)


def found(text: str, form: ToolFormat = PLAIN, tool: ToolDefinition = WEATHER) -> tuple[str, list[str]]:
    """The text left of an answer without its calls, and the arguments of those calls."""
    frames = cast(Any, SimpleNamespace(framing=SimpleNamespace(tools=form)))
    before, calls = calls_in(text, ChatRequest((), tools=Tools((tool, ToolDefinition("time")), "auto")), frames)
    return before, [call.arguments for call in calls]


@pytest.mark.parametrize(
    ("text", "before"),
    [
        (GOOD, ""),
        (f"\n {GOOD}\n", ""),
        (f"```json\n{GOOD}\n```", ""),
        (f"```\n{GOOD}```\n", ""),
        (f"<tool_call>\n{GOOD}\n</tool_call>", ""),
        (f"Let me see.\n<tool_call>{GOOD}</tool_call> ", "Let me see."),
    ],
)
def test_what_is_a_call_as_a_whole_is_one_where_the_template_has_no_format(text: str, before: str) -> None:
    assert found(text) == (before, ['{"city": "Bern"}'])
    twice = {GOOD: f"{GOOD}\n{GOOD}", f"[{GOOD}]": f"[{GOOD}, {GOOD}]"}.get(text)
    assert twice is None or found(twice) == ("", ['{"city": "Bern"}'] * 2)


@pytest.mark.parametrize(
    "text",
    [
        f"Such as {GOOD}",
        f'You could say: "{GOOD}"',
        f"Write `<tool_call>{GOOD}</tool_call>`",
        f"{GOOD} is how one asks.",
        f"For example:\n```json\n{GOOD}\n```",
        f"<tool_call>{GOOD}</tool_call> is how one asks.",
        GOOD.replace("Bern", "Bern")[:-1],
        GOOD.replace("weather", "climate"),
        GOOD.replace('"Bern"', "5"),
        GOOD.replace("city", "town"),
        '{"name": "time", "arguments": {"zone": "CET"}}',
        '"weather"',
        "",
    ],
)
def test_quoted_json_and_calls_that_fit_no_function_are_text(text: str) -> None:
    assert found(text) == (text, [])


def test_a_template_with_a_format_leaves_arguments_to_the_client() -> None:
    wrong = '{"name": "weather", "arguments": {"city": 5}}'
    assert found(f"<call>{wrong}</call>", OWN) == ("", ['{"city": 5}'])


@pytest.mark.parametrize("form", [PLAIN, OWN])
def test_a_call_beside_one_of_an_unknown_function_is_not_lost(form: ToolFormat) -> None:
    for calls in (f"{GOOD}\n{GOOD.replace('weather', 'climate')}", f"{GOOD.replace('weather', 'climate')}\n{GOOD}"):
        assert found(calls, form) == ("", ['{"city": "Bern"}'] * 2)
    unknown = f"{GOOD}\n{GOOD}".replace("weather", "climate")
    assert found(unknown, form) == (unknown, [])


@pytest.mark.parametrize("form", [PLAIN, OWN])
def test_a_call_by_a_name_that_is_too_long_to_be_quoted_is_left_out(form: ToolFormat) -> None:
    others = [GOOD.replace("weather", "x" * length) for length in (MOST_CALLED_NAME, MOST_CALLED_NAME + 1)]
    assert found("\n".join([*others, GOOD]), form) == ("", ['{"city": "Bern"}'] * 2)


UNIQUE = ToolDefinition("f", "", {"type": "object", "properties": {"t": {"type": "array", "uniqueItems": True}}})
TWICE = '{"name": "f", "arguments": {"t": [1, 1]}}'


@pytest.mark.parametrize(
    ("tools", "options", "called"),
    [
        (Tools((UNIQUE,), "required"), {}, True),
        (Tools((UNIQUE,), "named", "f"), {}, True),
        (Tools((ToolDefinition("g"),), "required"), {}, False),
        (Tools((UNIQUE,)), {}, False),
        (Tools((UNIQUE,)), {"choices": ["yes", "no"]}, True),
        (Tools((UNIQUE,)), {"choices": ["yes", TWICE]}, False),
        (Tools((UNIQUE,)), {"json_schema": ANSWER}, True),
        (Tools((UNIQUE,)), {"json_schema": {"type": "object"}}, False),
        (Tools((ToolDefinition("f", "", {"type": "object"}),)), {"json_schema": {"type": "object"}}, True),
    ],
)
def test_an_answer_that_can_only_be_a_call_is_one_whatever_a_grammar_cannot_enforce(
    tools: Tools, options: Any, called: bool
) -> None:
    frames = cast(Any, SimpleNamespace(framing=SimpleNamespace(tools=PLAIN)))
    before, calls = calls_in(TWICE, ChatRequest((), options, tools=tools), frames)
    assert (before, len(calls)) == (("", 1) if called else (TWICE, 0))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('Let me see.\n<call>{"name": "wea', "Let me see."),
        ('<call>{"name": ', ""),
        ("Let me see", "Let me see"),
        ('{"name": ', '{"name": '),
    ],
)
def test_of_a_call_that_a_stop_string_cut_in_two_nothing_is_left(text: str, left: str) -> None:
    frames = cast(Any, SimpleNamespace(framing=SimpleNamespace(tools=OWN)))
    assert cut_off(text, Tools((WEATHER,), "auto"), frames) == left
    assert cut_off(text, None, frames) == text


DOUBLED = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)} | {"a40": {}}

DRAFT = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    ("city", "fits"),
    [
        ({"pattern": "^B"}, True),
        ({"pattern": "^(a+)+$"}, False),
        ({"enum": ["Rome"]}, False),
        ({"format": "of-its-own"}, True),
        ({"$ref": "https://example.org/city.json"}, True),
        ({"$ref": "#/$defs/a0"}, True),
        ({"$ref": "#/properties/city"}, True),
        ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, True),
        ({"pattern": "(?<=x)y"}, True),
        ({"minLength": "5"}, True),
        ({"$schema": DRAFT, "pattern": "^(a+)+$"}, False),
        ({"$schema": DRAFT, "allOf": [{"pattern": "^(a+)+$"}]}, False),
        ({"$schema": DRAFT, "$ref": "#/$defs/a0"}, True),
        ({"not": {"$schema": DRAFT, "pattern": "^B"}}, False),
    ],
)
def test_a_schema_is_evaluated_in_bounds_and_what_cannot_be_excludes_nothing(city: Any, fits: bool) -> None:
    tool = WEATHER._replace(parameters={"type": "object", "properties": {"city": city}, "$defs": DOUBLED})
    said = GOOD.replace("Bern", "a" * 60 + "!") if "(a+)+" in str(city) else GOOD
    assert bool(found(said, tool=tool)[1]) is fits


NESTED: dict[str, Any] = {}
for _ in range(30):
    NESTED = {"allOf": [NESTED], "unevaluatedProperties": {}}
NAMED = {"$defs": {"own": {"$anchor": "own"}} | {str(n): {"title": "x"} for n in range(2000)}}
LISTED = {"$defs": {"listed": {"enum": [*range(8000)]}}}
SLOW, LONG = {"pattern": "(?:.?){900}b$"}, "a" * 8000


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (NESTED, {}),
        ({"unevaluatedItems": False, "contains": False}, [1]),
        (SLOW, LONG),
        ({"items": {"anyOf": [SLOW, {"type": "string"}]}, "maxItems": 1}, ["a"] * 8000),
        ({"uniqueItems": True, "maxItems": 1}, [{"n": n} for n in range(8000)]),
        ({"allOf": [{"additionalProperties": {}}] * 2000, "maxProperties": 1}, dict.fromkeys(map(str, range(2000)))),
        (NAMED | {"items": {"$ref": "#own"}, "maxItems": 1}, [1] * 8000),
        (LISTED | {"items": {"not": {"$ref": "#/properties/n/$defs/listed"}}, "maxItems": 1}, [-1] * 8000),
    ],
)
def test_a_schema_that_takes_too_much_work_excludes_nothing(schema: dict[str, Any], value: Any) -> None:
    tool = WEATHER._replace(parameters={"$schema": DRAFT, "properties": {"n": schema}})
    assert fits(tool, json.dumps({"n": value}))


def test_the_work_for_an_answer_is_limited_however_many_calls_it_has() -> None:
    tool = WEATHER._replace(parameters={"properties": {"n": {"items": {"type": "number"}, "maxItems": 1}}})
    call = json.dumps({"name": "weather", "arguments": {"n": [1] * 1000}})
    assert found(call, tool=tool) == (call, [])
    assert len(found(f"[{','.join([call] * 100)}]", tool=tool)[1]) == 100


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("1e400", {"multipleOf": 0.5}),
        ("9" * 400, {"multipleOf": 0.5}),
        ("3", {"minimum": "5"}),
        ("[1]", {"items": [{"type": "number"}]}),
    ],
)
def test_what_the_library_stumbles_over_excludes_nothing(value: str, schema: dict[str, Any]) -> None:
    assert fits(WEATHER._replace(parameters={"properties": {"n": schema}}), f'{{"n": {value}}}')


@pytest.mark.parametrize("arguments", ['{"t": "\\ud83d hi"}', '{"\\ud83d": [1]}'])
def test_half_a_character_in_a_quoted_call_is_replaced_for_the_template(arguments: str) -> None:
    call = ToolCall("weather", arguments, "c")
    request = ChatRequest((QuotedMessage("user", "hi"), QuotedMessage("assistant", "", calls=(call,))))
    [_, said] = conversation_of(request)
    told = json.loads(said.calls[0].arguments)
    assert "\N{REPLACEMENT CHARACTER}" in json.dumps(told, ensure_ascii=False)
    json.dumps(told, ensure_ascii=False).encode()
    whole = call._replace(arguments='{"t":  "\\ud83d\\ude00"}')
    assert conversation_of(ChatRequest((QuotedMessage("assistant", "", calls=(whole,)),)))[0].calls == (whole,)


@pytest.mark.parametrize("style", calling())
@pytest.mark.parametrize("brief", ["", "Be kind."])
def test_functions_are_listed_where_the_template_has_them(style: str, brief: str) -> None:
    framing = derive(tokenizer(style), style)
    tools = (ToolDefinition("weather", "How is it?", {"type": "object", "properties": {}}),)
    system = (QuotedMessage("system", brief),) if brief else ()
    request = ChatRequest((*system, QuotedMessage("user", "And now?")), tools=Tools(tools, "required"))
    prompt = prompt_of(request, cast(Any, SimpleNamespace(framing=framing)))
    assert [framed.role for framed in prompt] == ["system", "user"]
    assert prompt[0].text.count("weather") >= 1
    assert brief in prompt[0].text
    if style in ("hermes", "spelt"):
        turns = [{"role": each.role, "content": each.text} for each in request.messages]
        functions = [{"type": "function", "function": tool._asdict()} for tool in tools]
        more: Any = {"tools": functions, "tools_in_user_message": False}
        given: Any = tokenizer(style).apply_chat_template(turns, tokenize=True, **more)
        ours = list[int]()
        for each in prompt:
            content = framing.content.encode(each.text) if each.tokens is None else each.tokens
            ours += [*framing.opening(each.role, None), *content, *framing.closing(each.role)]
        assert ours == list(given["input_ids"])


def test_functions_that_none_may_call_are_not_listed_and_what_looks_like_a_call_of_another_is_text() -> None:
    frames = FakeEngine()
    said, tools = (QuotedMessage("user", "And now?"),), (ToolDefinition("weather"),)
    assert prompt_of(ChatRequest(said, tools=Tools(tools, "none")), frames) == prompt_of(ChatRequest(said), frames)
    assert prompt_of(ChatRequest(said, tools=Tools(tools, "required")), frames) != prompt_of(ChatRequest(said), frames)
    text = frames.framing.tools.called("weather", "{}")[0]
    assert [call.name for call in calls_in(text, ChatRequest(said, tools=Tools(tools, "auto")), frames)[1]] == [
        "weather"
    ]
    for other in (Tools((ToolDefinition("time"),), "auto"), Tools(tools, "none"), None):
        assert calls_in(text, ChatRequest(said, tools=other), frames) == (text, ())


def test_a_name_stands_where_the_template_has_it_and_nowhere_else() -> None:
    plain = cast(Any, SimpleNamespace(framing=derive(tokenizer("gemma"), "gemma")))
    assert speaker("ann", "user", plain) is None
    assert speaker("ann", "user", FakeEngine()) == "ann"
    assert speaker(None, "user", FakeEngine()) is None


def test_the_answers_of_a_request_share_the_work_of_their_checks() -> None:
    tool = ToolDefinition("sum", "", {"type": "object", "properties": {"a": {"items": {"type": "integer"}}}})
    wrong = json.dumps({"a": [0] * 99 + ["one"]})
    assert not any_fits([(tool, wrong)])
    assert any_fits([(tool, wrong)], answers=MOST), "what cannot be evaluated excludes nothing"
