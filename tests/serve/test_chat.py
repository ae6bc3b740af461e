"""/v1/chat/completions: each parameter is either supported or refused by name; responses have the promised format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentcho.serve.api import chat, ids, responses
from agentcho.serve.api.limits import RequestLimits
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import (
    MOST_CALLED_NAME,
    Answer,
    AnswerDelta,
    QuotedMessage,
    TokenUsage,
    ToolCall,
    ToolDefinition,
)

from .bodies import (
    CHAT_TOOL,
    LIKELY,
    SCHEMA,
    answered,
    chunks,
    completion,
    data,
    of_chat,
    of_responses,
    refused,
    tools,
    user,
)

CALL = ToolCall("weather", '{"city": "Bern"}')
CALLED = Answer("", "Let me see. <call>{}</call>", "stop", (4, 5), (CALL,), "Let me see.")
PLAIN = Answer("", "hé there", "stop", (7, 8), likely=(LIKELY,))


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def test_a_plain_request_is_all_defaults() -> None:
    target, request, shape = of_chat()
    assert target == ("m", None, None, None)
    assert request.messages == (QuotedMessage("user", "hello"),)
    assert (request.options, request.max_tokens, request.seed, request.choices) == ({}, None, None, 1)
    assert (request.logprobs, request.tools, request.audience) == (None, None, None)
    assert (request.priority, request.cache_salt) == (0, "")
    assert not shape.stream
    assert shape.ignored == ()
    assert shape.ids == request.ids
    assert len(set(request.ids)) == 1
    assert of_chat()[1].ids != request.ids


def test_what_is_sampled_is_as_the_client_says() -> None:
    _, request, _ = of_chat(
        temperature=0, top_p=0.5, top_k=-1, min_p=0.1, seed=-3, n=2, stop="END", max_completion_tokens=9, priority=2
    )
    assert request.options == {"temperature": 0, "top_p": 0.5, "top_k": 0, "min_p": 0.1, "stop": ("END",)}
    assert (request.seed, request.choices, request.max_tokens, request.priority) == (-3, 2, 9, -2)
    assert len(set(request.ids)) == 2
    assert of_chat(max_tokens=9, max_completion_tokens=9)[1].max_tokens == 9
    assert of_chat(stop=["a", "b"])[1].options == {"stop": ("a", "b")}
    refused("max_tokens", max_tokens=8, max_completion_tokens=9)


def test_penalties_biases_and_whole_numbers_with_a_fraction_are_taken() -> None:
    given: dict[str, Any] = {"presence_penalty": 0.5, "frequency_penalty": -1, "repetition_penalty": 1.2}
    _, request, _ = of_chat(**given, logit_bias={"7": 250, "50256": -100.0}, max_tokens=8.0, seed=3.0, n=2.0, top_k=5.0)
    assert request.options == {**given, "logit_bias": {7: 100.0, 50256: -100.0}, "top_k": 5}
    assert (request.max_tokens, request.seed, request.choices) == (8, 3, 2)
    assert type(request.max_tokens) is int


def test_what_vllm_ends_and_limits_texts_by_is_taken() -> None:
    given: dict[str, Any] = {"min_tokens": 3, "ignore_eos": True, "include_stop_str_in_output": True}
    lists: dict[str, Any] = {"stop_token_ids": [7, 8], "bad_words": ["a", " b"], "allowed_token_ids": [9]}
    for api in (of_chat, of_responses):
        assert api(**given, **lists)[1].options == given | {name: tuple(each) for name, each in lists.items()}
    refused("min_tokens", min_tokens=9, max_tokens=8)
    refused("min_tokens", api=responses, min_tokens=9, max_output_tokens=8)
    off: dict[str, Any] = {"min_tokens": 0, "ignore_eos": False, "stop_token_ids": [], "bad_words": []}
    assert of_chat(**off)[1].options == {}


def test_nulls_and_what_changes_nothing_are_taken() -> None:
    nothing: dict[str, Any] = dict.fromkeys(["max_tokens", "stop", "tools", "user", "response_format", "unheard_of"])
    default: dict[str, Any] = {"echo": False, "modalities": ["text"]}
    more: dict[str, Any] = {"response_format": {"type": "text"}, "functions": [], "logprobs": False, "stop": []}
    assert of_chat(**(nothing | default | more))[1].options == {}


def test_both_apis_read_whether_calls_may_be_parallel() -> None:
    for parsed in (of_chat, of_responses):
        for given, parallel in ((None, True), (True, True), (False, False)):
            _, request, shape = parsed(parallel_tool_calls=given)
            assert (request.parallel, shape.ignored) == (parallel, ())
    refused("parallel_tool_calls", parallel_tool_calls="no")


def test_what_is_ignored_is_counted() -> None:
    given: dict[str, Any] = {
        "user": "u",
        "safety_identifier": "s",
        "store": True,
        "metadata": {"a": "b"},
        "service_tier": "auto",
        "verbosity": "low",
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
    }
    again: dict[str, Any] = {
        "role": "assistant",
        "content": "x",
        "reasoning_content": "hm",
        "annotations": [],
        "audio": None,
    }
    _, _, shape = of_chat(**given, messages=[user("x"), again])
    assert set(shape.ignored) == {*given, "messages.reasoning_content"}


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("presence_penalty", 2.5),
        ("frequency_penalty", -3),
        ("presence_penalty", False),
        ("repetition_penalty", 0),
        ("logit_bias.x", {"x": 1}),
        ("audio", {"voice": "x", "format": "wav"}),
        ("modalities", ["text", "audio"]),
        ("prediction", {"type": "content", "content": "x"}),
        ("previous_response_id", "resp_1"),
        ("functions", [{"name": "x"}]),
        ("web_search_options", {"search_context_size": "low"}),
        ("min_tokens", -1),
        ("min_tokens", 1 << 21),
        ("stop_token_ids[0]", [-1]),
        ("stop_token_ids[1]", [5, "x"]),
        ("stop_token_ids", [5] * 1025),
        ("allowed_token_ids", []),
        ("allowed_token_ids[0]", [True]),
        ("bad_words[0]", [" "]),
        ("bad_words", "word"),
        ("ignore_eos", 1),
        ("include_stop_str_in_output", "yes"),
        ("echo", True),
        ("truncate_prompt_tokens", 5),
        ("prompt_logprobs", 1),
        ("structured_outputs.regex", {"regex": "a+"}),
        ("unheard_of", 0),
        ("max_tokens", -1),
        ("max_tokens", 0),
        ("max_tokens", 1 << 40),
        ("max_tokens", "9"),
        ("max_tokens", True),
        ("max_completion_tokens", 9.5),
        ("temperature", -0.1),
        ("top_p", 2),
        ("seed", 1 << 64),
        ("n", 0),
        ("n", 129),
        ("n", 1.5),
        ("stop", ["x"] * 17),
        ("stop[1]", ["x", ""]),
        ("top_logprobs", 3),
        ("model", ""),
        ("model", 3),
        ("messages", []),
        ("messages", {}),
        ("messages", "hello"),
        ("messages[0]", [None]),
        ("tool_choice", "sometimes"),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "weather"}}),
        ("response_format.type", {"type": "xml"}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": _deep(70)}}),
        ("structured_outputs.regex", {"regex": "a*"}),
        ("cache_salt", ""),
        ("priority", 1 << 40),
        ("agentcho.mood", {"mood": "good"}),
    ],
)
def test_what_is_not_taken_is_refused_by_its_name(param: str, value: Any) -> None:
    field = param.partition(".")[0].partition("[")[0]
    told = refused(param, **{field: value}).message
    assert told.startswith(f"{param}: ")


@pytest.mark.parametrize(
    ("param", "message"),
    [
        ("messages[1].role", {"role": "wizard", "content": "x"}),
        ("messages[1].role", {"role": "function", "content": "x", "name": "f"}),
        ("messages[1].role", {"content": "x"}),
        ("messages[1].content", {"role": "user"}),
        ("messages[1].content", {"role": "user", "content": None}),
        (
            "messages[1].content[1].type",
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "video"}]},
        ),
        (
            "messages[1].content[0].type",
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
        ),
        ("messages[1].content[0].type", {"role": "user", "content": [{"type": "input_audio"}]}),
        ("messages[1].content[0].text", {"role": "user", "content": [{"type": "text"}]}),
        ("messages[1].content[0].text", {"role": "user", "content": [{"type": "text", "text": 3}]}),
        ("messages[1].content[0]", {"role": "user", "content": ["x"]}),
        ("messages[1].content", {"role": "user", "content": 3}),
        ("messages[1].mood", {"role": "user", "content": "x", "mood": 1}),
        ("messages[1].function_call", {"role": "assistant", "content": "x", "function_call": {"name": "f"}}),
        ("messages[1].tool_calls", {"role": "user", "content": "x", "tool_calls": [{"function": {"name": "f"}}]}),
        (
            "messages[1].tool_calls[0].function.name",
            {"role": "assistant", "tool_calls": [{"function": {"name": ""}}]},
        ),
        (
            "messages[1].tool_calls[0].function.name",
            {"role": "assistant", "tool_calls": [{"function": {"name": "x" * (MOST_CALLED_NAME + 1)}}]},
        ),
        ("messages[1].tool_calls[0].type", {"role": "assistant", "tool_calls": [{"type": "custom", "function": {}}]}),
        ("messages[1].tool_call_id", {"role": "tool", "content": "x"}),
        ("messages[1].tool_call_id", {"role": "user", "content": "x", "tool_call_id": "call_1"}),
    ],
)
def test_a_message_that_is_none_is_refused_at_its_place(param: str, message: dict[str, Any]) -> None:
    refused(param, messages=[user("x"), message])


@pytest.mark.parametrize("name", ["look up", "天気", "x" * MOST_CALLED_NAME], ids=["space", "letters", "long"])
def test_a_call_of_an_unknown_function_can_be_sent_back(name: str) -> None:
    refused("tools[0].function.name", tools=[{"type": "function", "function": {"name": name}}])
    call = ToolCall(name, "{}", "call_abc_0")
    quoted = {"id": call.id, "type": "function", "function": {"name": name, "arguments": "{}"}}
    item = {"type": "function_call", "call_id": call.id, "name": name, "arguments": "{}"}
    _, asked, _ = of_chat(messages=[user("x"), {"role": "assistant", "tool_calls": [quoted]}])
    assert asked.messages[1].calls == (call,)
    assert of_responses(input=[item])[1].messages[0].calls == (call,)


def test_messages_are_read_in_all_their_forms() -> None:
    call = {"id": "call_abc_0", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    foreign = {"id": "call_0p", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "be"}, {"type": "text", "text": "brief"}]},
        {"role": "user", "content": "hi", "name": "Ann"},
        {"role": "assistant", "content": "yes", "id": "abc", "refusal": None, "tool_calls": None},
        {"role": "assistant", "content": "kept", "provider_specific_fields": {"id": "abc", "refusal": None}},
        {"role": "system", "content": ""},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "3", "tool_call_id": "call_abc_0"},
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "tool_calls": [foreign]},
        {"role": "assistant", "tool_calls": [call, foreign]},
    ]
    weather, other = ToolCall("weather", "{}", "call_abc_0"), ToolCall("weather", "{}", "call_0p")
    assert of_chat(messages=messages)[1].messages == (
        QuotedMessage("system", "be\nbrief"),
        QuotedMessage("user", "hi", "Ann"),
        QuotedMessage("assistant", "yes", id="abc"),
        QuotedMessage("assistant", "kept", id="abc"),
        QuotedMessage("system", ""),
        QuotedMessage("assistant", "", id="abc", calls=(weather,)),
        QuotedMessage("tool", "3", call_id="call_abc_0"),
        QuotedMessage("assistant", "no"),
        QuotedMessage("assistant", "", calls=(other,)),
        QuotedMessage("assistant", "", calls=(weather, other)),
    )


def test_a_request_has_bounds() -> None:
    few = RequestLimits(
        choices=2, tokens=9, messages=2, letters=10, stops=1, listed=2, tools=1, logprobs=1, schema_bytes=30
    )
    assert of_chat(few, messages=[user("12345")] * 2)[1].messages
    refused("messages", few, messages=[user("1")] * 3)
    assert refused("messages", few, messages=[user("123456")] * 2).code == "context_length_exceeded"
    refused("n", few, n=3)
    refused("max_completion_tokens", few, max_completion_tokens=10)
    refused("stop", few, stop=["a", "b"])
    refused("top_logprobs", few, logprobs=True, top_logprobs=2)
    refused("structured_outputs.choice", few, structured_outputs={"choice": ["a", "b", "c"]})
    refused("tools[0].function.parameters", few, tools=[CHAT_TOOL])
    refused("tools", few, tools=[{"type": "function", "function": {"name": name}} for name in "ab"])
    refused(
        "response_format", few, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content: Input should be a string or a list"),
        ({"messages": 5}, "messages: Input should be a list"),
        ({"stop": 5}, "stop: Input should be a string or a list"),
        ({"logit_bias": 5}, "logit_bias: Input should be an object"),
        ({"guided_json": 5}, "guided_json: Input should be an object"),
    ],
)
def test_what_is_of_another_type_is_told_by_the_types_of_json(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ApiError) as caught:
        of_chat(**given)
    assert caught.value.message == told


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("part", "place", "told"),
    [
        ({"type": "integer", "maximum": 1 << 64}, "/maximum", "the number is too large; give one from -9223372036854"),
        ({"enum": [0, -(1 << 63) - 1]}, "/enum/1", "the number is too large; give one from -9223372036854774784 to 18"),
        ({"type": "bogus"}, "/type", "Invalid type: bogus; correct the schema"),
        ({"pattern": "("}, "/pattern", "; correct the schema"),
        ({"type": "array", "uniqueItems": True}, "/uniqueItems", "leave this out, and check the answer yourself"),
    ],
)
def test_what_is_wrong_in_a_schema_is_told_with_its_place_and_remedy(
    part: dict[str, Any], place: str, told: str, whole: bool
) -> None:
    schema = part if whole else {"type": "object", "properties": {"a/b": part}, "required": ["a/b"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    message = refused("response_format", response_format=wanted).message
    assert f"at #{'' if whole else '/properties/a~1b'}{place}: " in message
    assert told in message


LEAST = -(1 << 63)


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"const": LEAST}, "/const"),
        ({"enum": [0, LEAST + 1]}, "/enum/1"),
        ({"const": {"minimum": [LEAST]}}, "/const/minimum/0"),
        ({"type": "integer", "const": -1e300}, "/const"),
        ({"type": "integer", "minimum": LEAST, "maximum": LEAST + 8}, "/maximum"),
        ({"properties": {"default": {"items": {"const": LEAST}}}}, "/properties/default/items/const"),
    ],
)
def test_a_number_that_would_end_the_process_never_reaches_the_compiler(schema: dict[str, Any], place: str) -> None:
    """A failure here is a segmentation fault."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": schema}}}}
    for given in ({"guided_json": schema}, {"structured_outputs": {"json": schema}}, {"tools": [tool]}):
        with pytest.raises(ApiError) as caught:
            of_chat(**given)
        assert f"{place}: the number is too large" in caught.value.message
    wanted = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
    assert place in refused("text.format", api=responses, text=wanted).message


def test_a_least_number_that_the_compiler_refuses_itself_is_left_to_it() -> None:
    harmless = {"type": "integer", "minimum": LEAST, "default": LEAST, "examples": [LEAST]}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": harmless}}}}
    assert tools(of_chat(tools=[tool])[1]).tools
    refused("guided_json", guided_json=harmless)


def test_the_largest_numbers_of_a_schema_are_taken() -> None:
    schema = {"enum": [-(1 << 63) + 1024, (1 << 64) - 1]}
    assert of_chat(guided_json=schema)[1].options == {"json_schema": schema}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"maximum": 1 << 64}}}}}
    told = refused("tools[0].function.parameters", tools=[tool], tool_choice="required").message
    assert "at #/properties/a/maximum: the number is too large" in told


@pytest.mark.parametrize(
    ("param", "named"),
    [
        ("response_format.json_schema", None),
        ("response_format.json_schema.schema", {"name": "x"}),
        ("response_format.json_schema.schema", {"name": "x", "schema": None}),
        ("response_format.json_schema.name", {"schema": SCHEMA}),
        *(
            ("response_format.json_schema.name", {"name": name, "schema": SCHEMA})
            for name in ("", "a b", "x" * 65, "é", "x\n")
        ),
    ],
)
def test_a_json_schema_has_a_name_and_a_schema(param: str, named: dict[str, Any] | None) -> None:
    told = refused(param, response_format={"type": "json_schema", "json_schema": named}).message
    assert told.startswith(f"{param}: it is ")


def test_an_answer_may_be_held_to_texts_or_to_json() -> None:
    named = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}
    assert of_chat(response_format=named)[1].options == {"json_schema": SCHEMA}
    assert of_chat(response_format={"type": "json_object"})[1].options == {"json_schema": {"type": "object"}}
    assert of_chat(structured_outputs={"choice": ["a", "b"]})[1].options == {"choices": ["a", "b"]}
    assert of_chat(guided_choice=["a", "b"])[1].options == {"choices": ["a", "b"]}
    assert of_chat(structured_outputs={"json": SCHEMA})[1].options == {"json_schema": SCHEMA}
    assert of_chat(guided_json=SCHEMA)[1].options == {"json_schema": SCHEMA}
    assert of_chat(structured_outputs={"json_object": True})[1].options == {"json_schema": {"type": "object"}}
    refused("structured_outputs.choice", structured_outputs={"choice": ["a"]}, response_format={"type": "json_object"})
    refused("guided_json", guided_json=SCHEMA, guided_choice=["a"])
    assert of_chat(structured_outputs={"choice": ["END."]}, stop="END")[1].options["stop"] == ("END",)
    told = refused("structured_outputs.choice", structured_outputs={"choice": []}).message
    assert told == "structured_outputs.choice: choices is empty: give at least one"
    refused("guided_choice", guided_choice=[])


def test_functions_and_which_must_be_called() -> None:
    _, request, shape = of_chat(tools=[CHAT_TOOL])
    assert tools(request) == ((ToolDefinition("weather", "", SCHEMA),), "auto", None)
    assert shape.calling == "auto"
    named: dict[str, Any] = {"type": "function", "function": {"name": "weather"}}
    _, request, shape = of_chat(tools=[CHAT_TOOL], tool_choice=named)
    assert tools(request)[1:] == ("named", "weather")
    assert shape.calling == "forced"
    assert of_chat(tools=[CHAT_TOOL], tool_choice="required")[2].calling == "forced"
    assert of_chat(tools=[CHAT_TOOL], tool_choice="none")[2].calling == "none"
    assert of_chat(tools=[], tool_choice="auto")[1].tools is None
    other = {"type": "function", "function": {"name": "time"}}
    one = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
    allowed = tools(of_chat(tools=[other, CHAT_TOOL], tool_choice=one)[1])
    assert ([each.name for each in allowed.tools], allowed.choice) == (["weather"], "required")
    refused("tool_choice", tools=[other], tool_choice=named)
    refused("tool_choice", tools=[other], tool_choice=one)
    refused("tools[1].function.name", tools=[CHAT_TOOL, CHAT_TOOL])
    texts = {"type": "function", "function": {"name": "f", "parameters": {"type": ["string"]}}}
    refused("tools[0].function.parameters.type", tools=[texts])
    refused("tools[0].type", tools=[{"type": "custom", "custom": {"name": "x"}}])


def function(name: str, **field: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"a/b": field}, "required": ["a/b"]}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


NONE_FITS = {"type": "integer", "minimum": 3, "maximum": 2}


def test_one_odd_function_takes_no_other_down_and_is_told_by_its_name_and_place() -> None:
    named: dict[str, Any] = {"type": "function", "function": {"name": "odd"}}
    given = [CHAT_TOOL, function("odd", **NONE_FITS)]
    assert of_chat(tools=given, tool_choice="required")[1].held == (ToolDefinition("weather", "", SCHEMA),)
    assert len(tools(of_chat(tools=given, tool_choice="required")[1]).tools) == 2
    assert len(of_chat(tools=given)[1].held) == 2
    for more in ({"tools": given, "tool_choice": named}, {"tools": given[1:], "tool_choice": "required"}):
        place = f"tools[{len(more['tools']) - 1}].function.parameters"
        error = refused(place, **more)
        assert "the function odd" in error.message
        assert "at #/properties/a~1b: Unsatisfiable schema" in error.message
    odd = {"type": "function", "name": "odd", "parameters": given[1]["function"]["parameters"]}
    refused("tools[0].parameters", api=responses, tools=[odd], tool_choice="required")


@pytest.mark.parametrize(
    "field",
    [
        {"type": "string", "format": "uri-reference"},
        {"type": "string", "pattern": "^(?!/)"},
        {"type": "array", "uniqueItems": True},
        {"not": {"type": "null"}},
    ],
)
def test_what_a_grammar_does_not_know_makes_no_function_odd(field: dict[str, Any]) -> None:
    given = function("look", **field)
    found = of_chat(tools=[given], tool_choice="required")[1]
    assert [tool.parameters for tool in found.held] == [given["function"]["parameters"]]


def test_a_schema_that_cannot_be_used_is_told_by_its_place() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    shaped = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    told = refused("response_format", response_format=shaped).message
    assert "at #/properties/a/uniqueItems: " in told
    schema["properties"]["a"] = {"type": "string", "format": "regex"}  # type: ignore[index]
    assert of_chat(response_format=shaped)[1].options == {"json_schema": schema}


def test_a_format_says_what_all_is_that_is_no_call() -> None:
    more: dict[str, Any] = {"tools": [CHAT_TOOL], "response_format": {"type": "json_object"}}
    assert of_chat(**more, tool_choice="none")[1].options == {"json_schema": {"type": "object"}}
    assert of_chat(**more, tool_choice="required")[1].options == {}
    _, request, shape = of_chat(**more, stream=True)
    assert request.options == {"json_schema": {"type": "object"}}
    said = Answer("", "{}", "stop")
    assert _heard(shape, ["{", "}"], said, None) == (["{}"], ["stop"])
    pieces, [first, *_] = _heard(shape, ["{", "}"], said._replace(calls=(CALL,)), None)
    assert (pieces, first.function.name) == ([], "weather")


GUIDES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "guided_choice": ({"guided_choice": ["a", "b"]}, {"choices": ["a", "b"]}),
    "structured_outputs.choice": ({"structured_outputs": {"choice": ["a"]}}, {"choices": ["a"]}),
    "guided_json": ({"guided_json": {"type": "object"}}, {"json_schema": {"type": "object"}}),
    "structured_outputs.json": (
        {"structured_outputs": {"json": {"type": "integer"}}},
        {"json_schema": {"type": "integer"}},
    ),
    "structured_outputs.json_object": (
        {"structured_outputs": {"json_object": True}},
        {"json_schema": {"type": "object"}},
    ),
}


@pytest.mark.parametrize("param", GUIDES)
def test_what_a_text_is_held_to_leaves_a_call_as_it_is(param: str) -> None:
    guide, options = GUIDES[param]
    assert of_chat(**guide)[1].options == options
    _, request, shape = of_chat(**guide, tools=[CHAT_TOOL], stream=True)
    assert request.options == options
    text = "a" if "choices" in options else "{}"
    assert _heard(shape, [text], Answer("", text, "stop"), None) == ([text], ["stop"])
    assert of_chat(**guide, tools=[CHAT_TOOL], tool_choice="none")[1].options == options
    assert of_chat(**guide, tools=[CHAT_TOOL], tool_choice="required")[1].options == {}
    both: dict[str, Any] = {"response_format": {"type": "json_object"}, "tools": [CHAT_TOOL], "tool_choice": "required"}
    refused(param, **guide, **both)


def test_what_it_says_to_agentcho() -> None:
    target, request, shape = of_chat(
        model="m@audit#town", agentcho={"society": "town", "agent": "ann", "audience": ["bob", "bob"]}, cache_salt="s"
    )
    assert target == ("m", "audit", "town", "ann")
    assert (request.audience, request.cache_salt, shape.model) == (("bob",), "s", "m@audit#town")
    assert of_chat(agentcho={"audience": "everyone"})[1].audience is None
    assert of_chat(agentcho={"audience": []})[1].audience == ()
    refused("agentcho", model="m#town", agentcho={"society": "city"})
    refused("agentcho", agentcho={"society": "../etc"})
    refused("agentcho.audience", agentcho={"audience": ["everyone"]})
    refused("agentcho.audience", agentcho={"audience": 3})
    refused("model", model="m@audit@enforce")


def test_an_answer_has_what_clients_check() -> None:
    _, _, shape = of_chat(n=2, logprobs=True, top_logprobs=2, return_token_ids=True, model="m@audit")
    cut = PLAIN._replace(ended="max_tokens", likely=())
    found = completion(shape, answered(shape, PLAIN, cut))
    assert (found.object, found.model, found.id) == ("chat.completion", "m@audit", shape.id)
    assert [each.index for each in found.choices] == [0, 1]
    assert [each.finish_reason for each in found.choices] == ["stop", "length"]
    first = found.choices[0]
    assert first.message.model_dump(exclude_unset=True) == {
        "role": "assistant",
        "content": "hé there",
        "refusal": None,
        "id": shape.ids[0],
    }
    assert first.logprobs is not None
    assert first.logprobs.content is not None
    token = first.logprobs.content[0]
    assert (token.token, token.bytes, token.logprob) == ("hé", list("hé".encode()), -0.25)
    assert [each.logprob for each in token.top_logprobs] == [-0.25, -9999.0]
    assert getattr(first, "token_ids") == [7, 8]  # noqa: B009


def test_usage_adds_up_whatever_was_counted() -> None:
    _, _, shape = of_chat()
    found = completion(shape, answered(shape, PLAIN)).usage
    assert found is not None
    assert found.prompt_tokens_details is not None
    assert (found.prompt_tokens, found.completion_tokens, found.total_tokens) == (20, 3, 23)
    assert found.prompt_tokens_details.model_dump(exclude_unset=True) == {
        "cached_tokens": 8,
        "message_reused_tokens": 5,
    }
    more = chat.whole(shape, answered(shape, PLAIN, usage=TokenUsage(10, 1, 8, 8)))["usage"]["prompt_tokens_details"]
    assert more == {"cached_tokens": 8, "message_reused_tokens": 2}
    new = TokenUsage(10, 1, 8, 0, (("first_sent", 2),))
    told = chat.whole(shape, answered(shape, PLAIN, usage=new))["usage"]["prompt_tokens_details"]
    assert told == {"cached_tokens": 8, "message_reused_tokens": 0, "unmatched_first_sent_tokens": 2}


def test_calls_lead_back_to_their_answer() -> None:
    _, _, shape = of_chat(tools=[CHAT_TOOL])
    whole = chat.whole(shape, answered(shape, CALLED._replace(calls=(CALL, CALL))))
    found = completion(shape, answered(shape, CALLED._replace(calls=(CALL, CALL)))).choices[0]
    assert (found.finish_reason, found.message.content) == ("tool_calls", "Let me see.")
    function = {"name": "weather", "arguments": CALL.arguments}
    assert [each["function"] for each in whole["choices"][0]["message"]["tool_calls"]] == [function] * 2
    message = whole["choices"][0]["message"]
    assert len({each["id"] for each in message["tool_calls"]}) == 2
    again = of_chat(messages=[user("x"), message])[1].messages[1]
    calls = tuple(CALL._replace(id=ids.call(shape.ids[0], number)) for number in range(2))
    assert again == QuotedMessage("assistant", "Let me see.", id=shape.ids[0], calls=calls)
    del message["id"]
    assert of_chat(messages=[user("x"), message])[1].messages[1].id == shape.ids[0]
    silent = answered(shape, CALLED._replace(before=""))
    assert completion(shape, silent).choices[0].message.content is None


def test_a_stream_says_the_same_as_the_whole() -> None:
    _, _, shape = of_chat(
        n=2, stream=True, logprobs=True, return_token_ids=True, stream_options={"include_usage": True}
    )
    deltas = [
        AnswerDelta(0, "hé", (LIKELY,)),
        AnswerDelta(1, "so"),
        AnswerDelta(0, ""),
        AnswerDelta(0, "", (LIKELY,)),
        AnswerDelta(0, " there"),
    ]
    answers = answered(shape, PLAIN, Answer("", "so", "max_tokens"))
    found = chunks(shape, deltas, answers)
    assert {each.object for each in found} == {"chat.completion.chunk"}
    assert {each.id for each in found} == {shape.id}
    *spoken, last = found
    assert last.choices == []
    assert last.usage.total_tokens == 23
    assert all(each.usage is None for each in spoken)
    first = [each.choices[0] for each in spoken if each.choices[0].index == 0]
    assert [each.delta.role for each in first] == ["assistant", *[None] * 4]
    assert "".join(each.delta.content or "" for each in first) == "hé there"
    assert [each.finish_reason for each in first] == [None] * 4 + ["stop"]
    assert [len(each.logprobs.content) for each in first if each.logprobs] == [1, 1]
    assert (first[-1].delta.id, first[-1].token_ids) == (shape.ids[0], [7, 8])
    assert [each.choices[0].finish_reason for each in spoken if each.choices[0].index == 1][-1] == "length"


def test_the_last_tokens_have_logarithms_too_where_they_have_no_text() -> None:
    _, _, shape = of_chat(stream=True, logprobs=True)
    found = chunks(
        shape, [AnswerDelta(0, "hé", (LIKELY,))], answered(shape, PLAIN._replace(text="hé", likely=(LIKELY,) * 3))
    )
    assert [len(each.choices[0].logprobs.content) for each in found if each.choices[0].logprobs] == [1, 2]


def test_tokens_are_told_by_their_ids_where_that_is_asked_for() -> None:
    for by_id, token in ((False, "hé"), (True, "token_id:7")):
        _, _, shape = of_chat(logprobs=True, top_logprobs=2, return_tokens_as_token_ids=by_id)
        found = completion(shape, answered(shape, PLAIN)).choices[0].logprobs
        assert found is not None
        assert found.content is not None
        assert [each.token for each in (found.content[0], found.content[0].top_logprobs[0])] == [token, token]
        assert found.content[0].bytes == [*"hé".encode()]


def test_what_ended_an_answer_is_its_stop_reason() -> None:
    for reason in (None, "END", 7):
        _, _, shape = of_chat(stream=True)
        answers = answered(shape, PLAIN._replace(reason=reason))
        assert chat.whole(shape, answers)["choices"][0]["stop_reason"] == reason
        last = chunks(shape, [AnswerDelta(0, PLAIN.text)], answers)[-1].choices[0]
        assert (last.finish_reason, last.stop_reason) == ("stop", reason)


def test_a_stream_has_usage_only_where_it_is_asked_for() -> None:
    _, _, shape = of_chat(stream=True)
    found = chunks(shape, [AnswerDelta(0, "hé there")], answered(shape, PLAIN))
    assert all(each.choices for each in found)
    assert not any("usage" in each.model_fields_set for each in found)


def _heard(shape: Any, deltas: list[str], answer: Answer, opening: str | None) -> tuple[list[str], list[Any]]:
    """The text pieces of a stream, and its calls followed by the finish reason of its last chunk."""
    found = chunks(shape, [AnswerDelta(0, text) for text in deltas], answered(shape, answer), opening)
    pieces = [each.choices[0].delta.content for each in found if each.choices[0].delta.content]
    calls = [call for each in found for call in each.choices[0].delta.tool_calls or ()]
    return pieces, [*calls, found[-1].choices[0].finish_reason]


def test_each_of_several_choices_ends_when_it_ends() -> None:
    _, _, shape = of_chat(n=2, stream=True, tools=[CHAT_TOOL])
    answers = answered(shape, CALLED, PLAIN)
    deltas = [
        AnswerDelta(0, "Let me see. "),
        AnswerDelta(1, "hé"),
        AnswerDelta(0, "", ended=answers.answers[0]),
        AnswerDelta(1, " there"),
    ]
    told = [each.choices[0] for each in chunks(shape, deltas, answers, "<call>")]
    reasons = [(each.index, each.finish_reason) for each in told if each.finish_reason]
    assert reasons == [(0, "tool_calls"), (1, "stop")]
    [end] = [place for place, each in enumerate(told) if each.finish_reason == "tool_calls"]
    assert [each.delta.content for each in told[end + 1 :] if each.delta.content] == [" there"]
    assert not any(each.index == 0 for each in told[end + 1 :])


def test_what_may_become_a_call_is_held_back_and_told_at_the_end() -> None:
    _, _, shape = of_chat(tools=[CHAT_TOOL], stream=True)
    deltas = ["Let me ", "see. <", "call", ">{}</call>"]
    pieces, (first, second, reason) = _heard(shape, deltas, CALLED, "<call>")
    assert pieces == ["Let me", " see."]
    assert (first.index, first.id, first.type) == (0, ids.call(shape.ids[0], 0), "function")
    assert (first.function.name, first.function.arguments) == ("weather", "")
    assert (second.index, second.id, second.function.name) == (0, None, None)
    assert (second.function.arguments, reason) == (CALL.arguments, "tool_calls")


def test_what_did_not_become_a_call_is_text() -> None:
    _, _, shape = of_chat(tools=[CHAT_TOOL], stream=True)
    answer = Answer("", "a < b <call> c", "stop")
    assert _heard(shape, ["a <", " b ", "<call> c"], answer, "<call>") == (["a", " < b", " <call> c"], ["stop"])
    ended = Answer("", "a <ca", "max_tokens")
    assert _heard(shape, ["a <ca"], ended, "<call>") == (["a", " <ca"], ["length"])
    assert _heard(shape, ["a <ca"], ended, None) == (["a <ca"], ["length"])
    assert _heard(shape, ["a <ca"], ended, "") == (["a <ca"], ["length"])
    bare = Answer("", ' {"a": 1}', "stop")
    for opening in ("<call>", "{"):
        assert _heard(shape, [" ", '{"a"', ": 1}"], bare, opening) == ([' {"a": 1}'], ["stop"])
    after = Answer("", "so {", "stop")
    assert _heard(shape, ["so", " {"], after, "{") == (["so", " {"], ["stop"])


def test_nothing_of_a_call_that_must_be_is_text() -> None:
    _, _, shape = of_chat(tools=[CHAT_TOOL], tool_choice="required", stream=True)
    pieces, (first, *_) = _heard(shape, ['{"name":', "}"], Answer("", '{"name":}', "stop", calls=(CALL,)), None)
    assert pieces == []
    assert first.function.name == "weather"
    _, _, shape = of_chat(tools=[CHAT_TOOL], tool_choice="none", stream=True)
    assert _heard(shape, ["<call>"], Answer("", "<call>", "stop"), "<call>") == (["<call>"], ["stop"])


def test_an_error_in_mid_stream_is_an_error_to_clients() -> None:
    _, _, shape = of_chat(stream=True)
    (told,) = data([chat.ChatStream(shape).fault(ApiError(500, "it failed"))])
    assert told["error"]["message"] == "it failed"


def test_no_character_of_an_answer_ends_an_event() -> None:
    _, _, shape = of_chat(stream=True)
    text = "a\u2028b\x85c\r\nd\x0be\x1cf"
    found = chunks(shape, [AnswerDelta(0, text)], answered(shape, Answer("", text, "stop")))
    assert found[1].choices[0].delta.content == text
    assert json.loads(json.dumps(text)) == text
