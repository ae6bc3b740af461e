"""Functions, calls and results are written as the template writes them, and none of their text becomes framing."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agentcho import Sampling
from agentcho.engine.fake.toy_tokenizer import FakeFraming
from agentcho.engine.framing import Framing
from agentcho.engine.template import derive
from agentcho.engine.tools import ToolFormat
from agentcho.errors import RequestError
from agentcho.protocol.call import ChatMessage
from agentcho.protocol.tools import ToolCall, ToolDefinition, Written

from ..engines import Engines
from .families import Family
from .templates import LISTED, calling, styles, tokenizer

ID = "abcdefghi"
FORMATS = tuple(calling())
PLAIN = ("chatml", "gemma", "inst", "harmony")
MORE = [pytest.param(each, marks=pytest.mark.slow) for each in (*FORMATS, "chatml") if each != "hermes"]
"""The other formats, and one template without function calling."""
PARAMETERS = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
WEATHER = ToolDefinition("weather", "How is the weather?", PARAMETERS)
TIME = ToolDefinition("time", "What time is it?")
OFFER = ChatMessage("system", "", tools=(WEATHER,))
FORGERIES = sorted({text for style in (styles() | calling()).values() for text in style.added} | {'"}', "\\", "{", "]"})
SPOKEN = st.lists(
    st.sampled_from(FORGERIES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=5
).map("".join)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | SPOKEN
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SPOKEN, inner, max_size=3), max_leaves=8
)
ARGUMENTS = st.dictionaries(SPOKEN, VALUES, max_size=3)


@cache
def framing(style: str) -> Framing:
    return derive(tokenizer(style), style)


def tools(style: str) -> ToolFormat:
    return FakeFraming().tools if style == "fake" else framing(style).tools


def rendered(style: str, turns: list[dict[str, Any]], listed: list[ToolDefinition] | None = None) -> list[int]:
    functions = [{"type": "function", "function": tool._asdict()} for tool in listed or ()]
    more: Any = {"tools": functions or None, "tools_in_user_message": False}
    given: Any = tokenizer(style).apply_chat_template(turns, tokenize=True, **more)
    return list(given["input_ids"])


def framed(style: str, *messages: tuple[str, Written | str]) -> list[int]:
    """The ids of a conversation as the engine assembles them, without BOS."""
    form, ids = framing(style), list[int]()
    for role, said in messages:
        content = form.content.encode(said) if isinstance(said, str) else form.content.check(said[1])
        ids += [*form.opening(role, None), *content, *form.closing(role)]
    return ids


def asked(arguments: dict[str, Any], style: str = "") -> dict[str, Any]:
    text = style == "fenced"
    function = {"name": "weather", "arguments": json.dumps(arguments, ensure_ascii=False) if text else arguments}
    return {
        "role": "assistant",
        "content": None if text else "",
        "tool_calls": [{"id": ID, "type": "function", "function": function}],
    }


def test_a_talk_with_functions_has_the_ids_that_its_template_gives() -> None:
    form = tools("hermes")
    given: dict[str, Any] = {"place": 'Zürich "west"', "days": [1, 2.5, None, {}]}
    turns = [
        {"role": "user", "content": "Well?"},
        asked(given),
        {"role": "tool", "content": "rain", "tool_call_id": ID},
        {"role": "user", "content": "And then?"},
    ]
    parameters = {"type": "object", "properties": {}}
    for style in ("hermes", "spelt"):
        ours = framed(
            style,
            ("system", tools(style).listing([WEATHER, TIME])),
            ("user", "Well?"),
            ("assistant", tools(style).called("weather", json.dumps(given))),
            ("tool", tools(style).result("rain", ID, "weather")),
            ("user", "And then?"),
        )
        assert ours == rendered(style, turns, [WEATHER, TIME._replace(parameters=parameters)])
    assert form.opening == "<tool_call>"


@pytest.mark.parametrize("style", ["parameters", "listed", "marked", "fenced"])
def test_calls_and_results_have_the_ids_that_other_templates_give(style: str) -> None:
    said = 'rain, "heavy"\n' if style == "parameters" else '"rain"'
    id = "" if style == "marked" else ID  # the id stands between two control tokens there and is omitted
    given: dict[str, Any] = {"place": "Zürich", "more": {"a": []}}
    turns = [
        {"role": "user", "content": "Well?"},
        asked(given, style),
        {"role": "tool", "content": said, "tool_call_id": id},
    ]
    form = tools(style)
    ours = framed(
        style,
        ("user", "Well?"),
        ("assistant", form.spoken("", [ToolCall("weather", json.dumps(given), ID)])),
        ("tool", form.result(said, id, "weather")),
    )
    assert rendered(style, turns)[-len(ours) :] == ours


@pytest.mark.parametrize("style", ["hermes", "spelt"])
def test_what_else_a_system_message_says_stands_where_the_template_puts_it(style: str) -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Well?"}]
    ours = framed(style, ("system", tools(style).listing([WEATHER], "Be brief.")), ("user", "Well?"))
    assert ours == rendered(style, turns, [WEATHER])
    assert tools(style).listing([WEATHER])[0] == tools(style).listing([WEATHER], "Be brief.")[0].removeprefix(
        "Be brief.\n\n"
    )


def test_functions_that_a_template_puts_first_stand_before_what_else_the_system_says() -> None:
    text, _ = tools("parameters").listing([WEATHER, TIME], "Be brief.")
    assert text.startswith("Environment: ipython\nYou have these functions.")
    assert text.endswith("\n\nBe brief.")
    assert '\n    "function": {\n        "name": "weather"' in text
    assert "Knowledge ends" not in text, "what a template says of itself is no part of it"


@pytest.mark.parametrize("style", [*PLAIN, "listed"])
def test_functions_are_listed_in_words_of_our_own_where_the_template_does_not(style: str) -> None:
    text, ids = tools(style).listing([WEATHER, TIME], "Be brief.")
    assert text.startswith("Be brief.\n\nYou may call functions.")
    assert all(json.dumps(tool.description) in text for tool in (WEATHER, TIME))
    assert framing(style).content.decode(ids) == text
    assert tools(style).opening in text


@pytest.mark.parametrize("style", [*styles(), *FORMATS])
def test_a_model_may_be_left_free_to_call_where_its_template_has_a_format(style: str) -> None:
    if style != "bare":
        assert tools(style).auto == (style in FORMATS)


def test_the_mark_of_a_call_can_be_said_and_those_of_results_and_functions_cannot() -> None:
    known, content = tokenizer("listed"), framing("listed").content
    ids = {text: known.added_tokens_encoder[text] for text in LISTED}
    free = {text for text in LISTED if ids[text] not in content.forbidden}
    assert free == {"[TOOL_CALLS]"}
    assert ids["[TOOL_CALLS]"] not in framing("listed").unsayable(len(known), len(known))
    assert content.encode("[TOOL_CALLS]").count(ids["[TOOL_CALLS]"]) == 0, "no text of a user becomes it"


@pytest.mark.parametrize("style", [*FORMATS, *PLAIN])
@settings(max_examples=25, deadline=None)
@given(words=st.tuples(SPOKEN, SPOKEN, SPOKEN, SPOKEN), arguments=ARGUMENTS)
def test_no_word_of_a_function_a_call_or_a_result_forges_framing(style: str, words: Any, arguments: Any) -> None:
    form, content = tools(style), framing(style).content
    name, other, text, id = words
    tool = ToolDefinition(name, text, PARAMETERS | {"description": other})
    plain = ToolDefinition("a", "b", PARAMETERS | {"description": "c"})
    assert marks(style, form.listing([tool], text)) == marks(style, form.listing([plain], "d"))
    said = form.spoken(text, [ToolCall(name, json.dumps(arguments), id)] * 2)
    assert marks(style, said) == marks(style, form.spoken("d", [ToolCall("a", "{}", "i")] * 2))
    assert marks(style, form.result(text, id, name)) == marks(style, form.result("d", "i", "a"))
    assert content.decode(content.check(said[1])) == said[0]


def marks(style: str, said: Written) -> list[int]:
    """The added tokens of a text, in order."""
    return [id for id in said[1] if id in framing(style).content.special]


@pytest.mark.slow
@pytest.mark.parametrize("style", [*FORMATS, *PLAIN, "fake"])
@settings(max_examples=40, deadline=None)
@given(
    names=st.lists(SPOKEN.filter(bool), min_size=1, max_size=3),
    arguments=ARGUMENTS,
    before=st.sampled_from(["", "Let me see.", "<tool_call"]),
)
def test_what_is_written_as_calls_is_read_as_the_same_calls(
    style: str, names: list[str], arguments: Any, before: str
) -> None:
    form = tools(style)
    if form.opening == "{":
        before = ""
    if style in ("marked", "fenced"):  # names cannot be quoted in these
        names = [f"f{len(name)}-x" for name in names]
    written, _ = form.spoken(before, [ToolCall(name, json.dumps(arguments), ID) for name in names])
    said, calls = form.read(written)
    assert said == before
    assert [call.name for call in calls] == names
    assert [json.loads(call.arguments) for call in calls] == [arguments] * len(names)
    assert {call.id for call in calls} == {ID if style in ("listed", "marked") else ""}


@pytest.mark.parametrize("style", [*FORMATS, *PLAIN, "fake"])
def test_bare_json_is_read_in_every_format_as_it_was_written(style: str) -> None:
    for key in ("arguments", "parameters"):
        text = ' {"name": "f", "KEY": {"a" : 1.50, "b":[ ]}}\n'.replace("KEY", key)
        assert tools(style).read(text) == ("", (ToolCall("f", '{"a" : 1.50, "b":[ ]}'),))


BROKEN = (
    '{"name": "f", "arguments": {"a": }}',
    '{"name": "f", "arguments": {"a": 1}',
    '{"name": "f", "arguments": "{}"}',
    '{"name": 5, "arguments": {}}',
    '{"name": "", "arguments": {}}',
    '{"name": "\\ud800", "arguments": {}}',
    '{"name": "f", "arguments": {"a": NaN}}',
    '{"name": "Bob"}',
    "{" * 100_000,
    '{"name": "f", "arguments": {"a": ' + "[" * 100_000,
    "",
)


@pytest.mark.parametrize("style", ["hermes", "parameters", "listed", "chatml"])
@pytest.mark.parametrize("text", BROKEN, ids=map(str, range(len(BROKEN))))
def test_broken_json_is_no_call_but_text(style: str, text: str) -> None:
    form = tools(style)
    marked = text if form.opening == "{" else f"Now: {form.opening}{text}"
    for said in (text, marked):
        assert form.read(said) == (said, ())


@pytest.mark.parametrize(
    "text", ["f[ARGS]", "f[ARGS]{", 'f[ARGS]{"a": }', 'f {"a": 1}', '[ARGS]{"a": 1}', "f[ARGS]{}x[ARGS]"]
)
def test_a_call_between_marks_is_read_as_far_as_it_is_whole(text: str) -> None:
    form = tools("marked")
    said = f"Now: [TOOL_CALLS]{text.replace('[ARGS]', '[CALL_ID]abc[ARGS]')}"
    whole = text.startswith("f[ARGS]{}")
    assert form.read(said) == (("Now:", (ToolCall("f", "{}", "abc"),)) if whole else (said, ()))


@pytest.mark.parametrize("end", ["x", "```x", "``"])
def test_line_breaks_after_the_beginning_of_a_fence_are_text(end: str) -> None:
    text = "```" + "\n" * 4000 + end
    assert tools("chatml").read(text) == (text, ())


def test_a_call_is_read_after_a_broken_one_and_after_text() -> None:
    good = '<tool_call>\n{"arguments": {}, "name": "f"}\n</tool_call>'
    broken = '<tool_call>{"name": }</tool_call>'
    assert tools("hermes").read(f"Well. {broken}\n{good}\nSo.") == (f"Well. {broken}", (ToolCall("f", "{}"),))
    assert tools("parameters").read(f"Well. {good[12:-13]}") == (f"Well. {good[12:-13]}", ())


def test_what_no_encoding_can_write_is_refused() -> None:
    with pytest.raises(RequestError, match="surrogate"):
        tools("hermes").listing([ToolDefinition("f", "\ud800")])
    with pytest.raises(RequestError, match="surrogate"):
        tools("hermes").spoken("\ud800", ())


def test_arguments_that_are_no_json_stay_as_they_are() -> None:
    for text in ("{", "[1]", '{"a": NaN}', '{"a": "\\ud800"}'):
        assert text in tools("hermes").called("f", text)[0]


NODE = {
    "type": "object",
    "properties": {
        "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        "kind": {"$ref": "#/$defs/Kind"},
        "again": {"$ref": "#/properties/kind"},
        "const": {"$ref": "#/definitions/Kind"},
    },
    "required": ["kind", "next"],
    "additionalProperties": False,
    "$defs": {"Kind": {"enum": ["a", "$ref", {"$ref": "#/$defs/Kind"}]}},
    "definitions": {"Kind": {"type": "integer", "minimum": 0, "maximum": 9}},
    "$schema": "https://json-schema.org/draft/2020-12/schema",
}
LEAF = {"properties": {"kind": {"$ref": "#/$defs/Kind"}}, "required": ["kind"], "$defs": {"Kind": {"type": "null"}}}
EITHER = {"properties": {"a": {"const": 1}}, "anyOf": [{"properties": {"b": {"const": 2}}, "required": ["b"]}]}
NODES = [ToolDefinition("node", "", NODE), ToolDefinition("leaf", "", LEAF), ToolDefinition("either", "", EITHER), TIME]
GOOD: list[tuple[str, Any]] = [
    ("node", {"kind": "a", "next": None}),
    ("node", {"kind": {"$ref": "#/$defs/Kind"}, "next": {"kind": "a", "next": None, "const": 3}, "again": "$ref"}),
    ("leaf", {"kind": None}),
    ("either", {"a": 1, "b": 2}),
    ("time", {}),
]
BAD: list[tuple[str, Any]] = [
    ("node", {"kind": None, "next": None}),
    ("node", {"kind": "a", "next": {"kind": 3, "next": None}}),
    ("node", {"kind": "a", "next": None, "again": 3}),
    ("node", {"kind": "a", "next": None, "const": "a"}),
    ("leaf", {"kind": "a"}),
    ("leaf", {"kind": None, "more": 1}),
    ("leaf", []),
    ("time", {"x": 1}),
    ("tree", {}),
]


@pytest.mark.parametrize("style", ["hermes", "parameters"])
def test_the_schema_of_a_call_takes_what_the_schemas_of_its_functions_take(style: str) -> None:
    key = {"hermes": "arguments", "parameters": "parameters"}[style]
    whole = Draft202012Validator(tools(style).forms(NODES)[0].schema)
    for name, arguments in GOOD:
        alone = Draft202012Validator(tools(style).forms(NODES, name)[0].schema)
        assert whole.is_valid({"name": name, key: arguments})
        assert alone.is_valid({"name": name, key: arguments})
        assert not alone.is_valid({"name": "other", key: arguments})
    for name, arguments in BAD:
        assert not whole.is_valid({"name": name, key: arguments}), (name, arguments)
    assert not whole.is_valid({"name": "time"})
    assert not whole.is_valid({"name": "time", key: {}, "more": 1})


def test_a_call_or_an_answer_may_be_asked_for() -> None:
    answer = {"$defs": {"Kind": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/Kind"}}
    for style, key in (("hermes", "arguments"), ("parameters", "parameters")):
        forms = tools(style).forms(NODES, None, answer)
        assert len(forms) == 1 + bool(forms[0].lead), "what begins as a call does has one schema with the answer"
        known = [Draft202012Validator(form.schema) for form in forms]
        for name, arguments in GOOD:
            assert known[0].is_valid({"name": name, key: arguments})
        assert known[-1].is_valid([1, 2])
        assert not any(each.is_valid(["a"]) for each in known)
        assert not any(each.is_valid({"name": "leaf", key: {"kind": 3}}) for each in known)


def test_a_function_whose_schema_takes_any_argument_can_still_be_given_any() -> None:
    open_ones = [
        ToolDefinition("f", "", {"type": "object"}),
        ToolDefinition("g", "", {"properties": {}, "additionalProperties": True}),
    ]
    whole = Draft202012Validator(tools("hermes").forms(open_ones)[0].schema)
    assert all(whole.is_valid({"name": name, "arguments": {"more": 1}}) for name in "fg")


def test_a_schema_is_not_made_of_no_function_or_of_parameters_that_are_no_object() -> None:
    form = tools("hermes")
    for listed, named in ([NODES, "tree"], [[], None], [[ToolDefinition("f", "", {"type": "string"})], None]):
        with pytest.raises(RequestError):
            form.forms(listed, named)  # type: ignore[arg-type]


@pytest.mark.parametrize("style", ["hermes", *MORE])
def test_a_call_that_must_be_is_said_as_the_template_writes_it(engines: Engines, style: str) -> None:
    engine = engines(Family("llama", "Llama", style=style))
    form, offered = engine.framing.tools, [ToolDefinition("node", "", NODE), ToolDefinition("leaf", "", LEAF)]
    for seed, named in enumerate((None, "leaf", "leaf")):
        sampling, forms = Sampling(max_tokens=90, temperature=2.0, seed=seed), form.forms(offered, named)
        words = engine.message(engine.decode(sampling=sampling, forms=forms))
        before, [call] = form.read(words.text)
        assert not before
        assert named in (None, call.name)
        schema = next(tool.parameters for tool in offered if tool.name == call.name)
        Draft202012Validator(schema or {}).validate(json.loads(call.arguments))
        said = words.tokens[slice(*words.sampled or ())]
        if style in ("hermes", "spelt", "fenced"):
            assert words.text == form.called(*call[:2])[0], "as the template writes it when it is quoted"
        assert any(said[: len(each.lead)] == each.lead for each in forms)
        assert any(said[len(said) - len(each.trail) :] == each.trail for each in forms)
        assert bool(forms[0].lead) == (style not in ("parameters", "chatml"))


@pytest.mark.parametrize(
    "style", ["marked", *(pytest.param(s, marks=pytest.mark.slow) for s in ("hermes", "parameters"))]
)
def test_an_answer_is_said_in_either_form(engines: Engines, style: str) -> None:
    engine = engines(Family("llama", "Llama", style=style))
    form, answer = engine.framing.tools, {"type": "object", "properties": {}, "additionalProperties": False}
    calls, seeds = set[bool](), iter(range(40))
    while len(calls) < 2 and (seed := next(seeds, None)) is not None:
        sampling = Sampling(max_tokens=60, temperature=2.0, seed=seed)
        text = engine.message(engine.decode(sampling=sampling, forms=form.forms([TIME, WEATHER], None, answer))).text
        _, called = form.read(text)
        assert called or text == "{}"
        calls.add(bool(called))
    assert calls == {True, False}


def test_a_call_that_has_no_room_is_refused_with_the_tokens_around_it(engines: Engines) -> None:
    engine = engines(Family("llama", "Llama", style="hermes"))
    forms = engine.framing.tools.forms([TIME])
    least = len(engine.message(engine.decode(sampling=Sampling(max_tokens=60), forms=forms)).tokens)
    with pytest.raises(RequestError, match=r"takes (\d+) tokens, but max_tokens is 9") as told:
        engine.decode(sampling=Sampling(max_tokens=9), forms=forms)
    needed = int(str(told.value).partition("takes ")[2].split()[0])
    assert 9 < needed <= least
    text = engine.message(engine.decode(sampling=Sampling(max_tokens=needed), forms=forms)).text
    assert engine.framing.tools.read(text)[1] == (ToolCall("time", "{}"),)
    with pytest.raises(RequestError, match="forms cannot be combined with choices"):
        engine.decode(sampling=Sampling(choices=("a",)), forms=forms)


@pytest.mark.parametrize("place", ["lead", "trail"])
def test_a_form_forges_no_framing(engines: Engines, place: str) -> None:
    engine = engines(Family("llama", "Llama", style="hermes"))
    [form] = engine.framing.tools.forms([TIME])
    ids = getattr(form, place) + tuple(sorted(engine.framing.content.forbidden))[:1]
    with pytest.raises(RequestError, match="special and cannot be content"):
        engine.decode(sampling=Sampling(max_tokens=60), forms=(form._replace(**{place: ids}),))


def test_roles_without_a_frame_of_their_own_are_framed_as_the_users() -> None:
    frames = {style: framing(style).frame("tool")[:2] for style in (*PLAIN, *FORMATS)}
    turn = "<|im_start|>user\n<tool_response>\n", "\n</tool_response><|im_end|>\n"
    assert frames == {
        "chatml": ("<|im_start|>tool\n", "<|im_end|>\n"),
        "gemma": framing("gemma").frame("user")[:2],
        "inst": framing("inst").frame("user")[:2],
        "harmony": framing("harmony").frame("user")[:2],
        "hermes": turn,
        "spelt": turn,
        "parameters": ("<|start_header_id|>ipython<|end_header_id|>\n\n", "<|eot_id|>"),
        "fenced": ("<outputs><output>", "</output></outputs>"),
        "marked": ("[TOOL_RESULTS][TOOL_CONTENT]", "[/TOOL_RESULTS]"),
        "listed": ('[TOOL_RESULTS]{"content": ', "[/TOOL_RESULTS]"),
    }


@pytest.mark.parametrize("text", ["rain", ' "heavy" \n', "", '{"content": 1}', "\\"])
@pytest.mark.parametrize("style", [*FORMATS, *PLAIN, "fake"])
def test_what_is_written_as_a_result_is_read_as_the_same_result(style: str, text: str) -> None:
    written, _ = tools(style).result(text, ID, "weather")
    assert tools(style).returned(written, ID, "weather") == text


@pytest.mark.parametrize("system", [(), (ChatMessage("system", "Be brief."),)])
@pytest.mark.parametrize("style", FORMATS)
def test_a_whole_conversation_with_functions_has_the_ids_of_the_stock_one(
    style: str, system: tuple[ChatMessage, ...]
) -> None:
    given: dict[str, Any] = {"place": 'Zürich "west"', "days": [1, 2.5, None, {}]}
    call = ToolCall("weather", json.dumps(given, ensure_ascii=False), ID)
    talk = (
        *system,
        ChatMessage("user", "Well?"),
        ChatMessage("assistant", "", calls=(call,)),
        ChatMessage("tool", 'rain, "heavy"\n', "weather", call_id=ID),
    )
    turns = [
        *({"role": said.role, "content": said.text} for said in system),
        {"role": "user", "content": "Well?"},
        asked(given, style),
        {"role": "tool", "content": talk[-1].text, "tool_call_id": ID, "name": "weather"},
    ]
    functions = [{"type": "function", "function": WEATHER._asdict()}]
    more: Any = {"tools": functions, "add_generation_prompt": True, "return_dict": False}
    for count in (len(talk) - 2, len(talk)):
        found, bos = framing(style).prompt([*talk[:count], OFFER]), framing(style).bos
        assert found is not None
        ids = [*([] if bos is None else [bos]), *(id for piece in found.pieces for id in piece.tokens), *found.opening]
        assert ids == tokenizer(style).apply_chat_template(turns[:count], **more)
        if not system:  # some of these templates omit system messages
            of = [place for piece in found.pieces for place in piece.messages]
            assert [place for place in of if place < count] == list(range(count))
            assert (count in of) == (style not in ("marked", "fenced")), "these list no functions"
    spelt = ToolDefinition("weather", f"{tokenizer(style).eos_token}?", PARAMETERS)
    offer = ChatMessage("system", "", tools=(spelt,))
    assert framing(style).prompt([*talk, offer]) is None, "no word of a function becomes a control token"


@pytest.mark.parametrize("style", ["hermes", "marked"])
def test_a_call_in_a_whole_conversation_is_a_piece_that_ends_where_its_message_does(style: str) -> None:
    talk = [ChatMessage("user", "Well?"), ChatMessage("assistant", "", calls=(ToolCall("weather", "{}", ID),))]
    talk += [ChatMessage("tool", "rain", "weather", call_id=ID)]
    found = framing(style).prompt([OFFER, *talk])
    assert found is not None
    listed = [(0,)] if style == "hermes" else []
    assert [piece.messages for piece in found.pieces] == [*listed, (1,), (2,), (3,)]
    closing = framing(style).closing("assistant")
    assert found.pieces[-2].tokens[-len(closing) :] == closing


@pytest.mark.parametrize("closed", [True, False])
def test_a_long_conversation_of_calls_is_cut_at_each(closed: bool) -> None:
    known = tokenizer("hermes")
    if not closed:
        known.chat_template = UNCLOSED
    called = ChatMessage("assistant", "", calls=(ToolCall("weather", "{}", ID),))
    told = ChatMessage("tool", "x", "weather", call_id=ID)
    found = derive(known, "long").prompt([OFFER, *[called, told] * 2000])
    assert found is not None
    of = [piece.messages for piece in found.pieces]
    assert of[-2:] == ([(3999,), (4000,)] if closed else [(3998, 3997), (4000, 3999)])
    assert sorted(place for places in of for place in places) == [*range(4001)]


UNCLOSED = (
    "{% if tools %}{{ '<|im_start|>system\n' + tools | tojson + '<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content or '') }}"
    "{% for call in m.tool_calls or [] %}{{ '<tool_call>' + call.function.name }}{% endfor %}"
    "{% if not m.tool_calls %}{{ '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""A call is not closed: its tool's result follows in the same message."""


@pytest.mark.parametrize("before", ["", "I look."])
def test_a_call_whose_end_is_not_found_is_one_piece_with_what_follows(before: str) -> None:
    known = tokenizer("hermes")
    known.chat_template = UNCLOSED
    call = ToolCall("weather", "{}", ID)
    called = [ChatMessage("assistant", before, calls=(call,)), ChatMessage("tool", "rain", "weather", call_id=ID)]
    framing = derive(known, "unclosed")
    found = framing.prompt([ChatMessage("user", "Well?"), OFFER, *called, ChatMessage("user", "So?")])
    assert found is not None
    assert [piece.messages for piece in found.pieces] == [(1,), (0,), (3, 2), (4,)]
    assert [known.decode(list(piece.tokens)).count("<tool_call>weather") for piece in found.pieces] == [0, 0, 1, 0]
    early = framing.prompt([OFFER, *called, ChatMessage("user", "So?")])
    assert early is not None
    assert [piece.messages for piece in early.pieces] == [(0, 1), (2,), (3,)], "it may stand before the functions"


@pytest.mark.parametrize(
    ("arguments", "derived"),
    [
        ("{% for key, value in a.items() %}<{{ key }}>{{ value }}</{{ key }}>{% endfor %}", False),
        ("<|{{ a if a is string else a | items | list | string }}|>", False),
        ("<args>{{ a | tojson(ensure_ascii=true) }}", True),
    ],
)
def test_arguments_in_a_syntax_of_the_templates_own_are_not_taken_for_json(arguments: str, derived: bool) -> None:
    known = tokenizer("hermes")
    known.chat_template = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') }}"
        "{% for call in m.tool_calls or [] %}"
        "{{ '<tool_call>' + call.function.name }}{% set a = call.function.arguments %}"
        + arguments
        + "</tool_call>{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )
    form = derive(known, "own").tools
    assert form.auto == derived
    if derived:
        assert form.spoken("", [ToolCall("weather", '{"place": "Zürich"}')])[0] == (
            '<tool_call>weather<args>{"place": "Z\\u00fcrich"}</tool_call>'
        )
