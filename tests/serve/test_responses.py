"""/v1/responses: each parameter is either supported or refused by name; responses have the promised format."""

from __future__ import annotations

from typing import Any

import pytest

from agentcho.serve.api import ids, responses
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import MOST_CALLED_NAME, Answer, AnswerDelta, QuotedMessage, ToolCall, ToolDefinition

from .bodies import (
    EVENTS,
    LIKELY,
    LIMITS,
    RESPONSES_TOOL,
    SCHEMA,
    answered,
    data,
    events,
    of_chat,
    of_responses,
    refused,
    response,
    tools,
    user,
)

CALL = ToolCall("weather", '{"city": "Bern"}')
CALLED = Answer("", "Let me see. <call>{}</call>", "stop", (4, 5), (CALL,), "Let me see.")
PLAIN = Answer("", "hé there", "stop", (7, 8), likely=(LIKELY,))
FUNCTION_CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
TOLD = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]
CALLING = [
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
]


def test_a_text_is_one_message_after_the_instructions() -> None:
    target, request, shape = of_responses(instructions="be brief", max_output_tokens=9, temperature=0.5, stop="END")
    assert target.model == "m"
    assert request.messages == (QuotedMessage("system", "be brief"), QuotedMessage("user", "hello"))
    assert (request.options, request.max_tokens, request.choices) == ({"temperature": 0.5, "stop": ("END",)}, 9, 1)
    assert (shape.ids, shape.ignored) == (request.ids, ())


def test_what_other_clients_send_by_default_is_taken() -> None:
    given: dict[str, Any] = {
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low", "summary": None},
        "text": {"verbosity": "low", "format": {"type": "text"}},
        "store": False,
        "metadata": {"a": "b"},
        "truncation": "disabled",
        "background": False,
        "parallel_tool_calls": True,
        "prompt_cache_key": "k",
        "stream_options": {"include_obfuscation": False},
        "max_tool_calls": 3,
        "previous_response_id": None,
    }
    _, request, shape = of_responses(**given)
    assert request.options == {}
    assert shape.ignored == (
        "include",
        "max_tool_calls",
        "metadata",
        "prompt_cache_key",
        "stream_options.include_obfuscation",
        "text.verbosity",
    )


def test_a_response_repeats_what_it_was_asked_with() -> None:
    given: dict[str, Any] = {
        "parallel_tool_calls": False,
        "max_tool_calls": 3,
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "service_tier": "flex",
        "user": "u",
    }
    _, _, shape = of_responses(**given, tools=[RESPONSES_TOOL | {"strict": True}])
    found = response(shape, answered(shape, PLAIN)).model_dump()
    assert {name: found[name] for name in given} == given
    assert found["tools"][0]["strict"] is True
    assert found["completed_at"] >= found["created_at"]
    assert shape.ignored == tuple(sorted({*given, "tools.strict"} - {"parallel_tool_calls"}))
    cut = response(shape, answered(shape, PLAIN._replace(ended="max_tokens")))
    assert (cut.status, cut.completed_at) == ("incomplete", None)
    plain = of_responses()[2].echo
    assert (plain["parallel_tool_calls"], plain["user"], plain["service_tier"]) == (True, None, None)


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("input", []),
        ("input", 3),
        ("previous_response_id", ""),
        ("store", "yes"),
        ("conversation", "conv_1"),
        ("background", True),
        ("truncation", "auto"),
        ("prompt", {"id": "p"}),
        ("include[0]", ["all"]),
        ("n", 2),
        ("messages", [user("x")]),
        ("max_output_tokens", 0),
        ("metadata.a", {"a": 3}),
        ("text.format.type", {"format": {"type": "xml"}}),
        ("text.mood", {"mood": "good"}),
        ("tools[0].type", [{"type": "web_search", "search_context_size": "low"}]),
        ("tools[0].name", [{"type": "function"}]),
        ("input[0].id", [{"type": "item_reference"}]),
        ("input[0].type", [{"type": 3}]),
        ("input[0].role", [{"content": "x"}]),
        ("input[0].role", [{"role": "tool", "content": "x"}]),
        ("input[0].content", [{"role": "user"}]),
        ("input[0].content[0].type", [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]),
        ("input[0].call_id", [{"type": "function_call", "name": "f", "arguments": "{}"}]),
        ("input[0].name", [FUNCTION_CALL | {"name": ""}]),
        ("input[0].name", [FUNCTION_CALL | {"name": "x" * (MOST_CALLED_NAME + 1)}]),
        ("input[0].name", [{"role": "user", "content": "x", "name": "x" * 129}]),
        ("input[0].output", [{"type": "function_call_output", "call_id": "c"}]),
        ("input[0].output[0].type", [{"type": "function_call_output", "call_id": "c", "output": [{"type": "x"}]}]),
    ],
)
def test_what_is_not_taken_is_refused_by_its_name(param: str, value: Any) -> None:
    field = param.partition(".")[0].partition("[")[0]
    assert refused(param, api=responses, **{field: value}).message.startswith(f"{param}: ")


def test_what_must_be_there_is_missed() -> None:
    with pytest.raises(ApiError) as caught:
        responses.parsed(b'{"model": "m"}', LIMITS)
    assert caught.value.param == "input"


def test_items_are_the_messages_that_they_are_parts_of() -> None:
    weather = ToolCall("weather", "{}")
    call = {"type": "function_call", "name": "weather", "arguments": "{}", "status": "completed"}
    items: list[dict[str, Any]] = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be brief"}]},
        {"role": "user", "content": "hi"},
        {"id": "msg_abc", "role": "assistant", "content": [{"type": "output_text", "text": "see", "annotations": []}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        call | {"id": "fc_abc_0", "call_id": "call_abc_0"},
        call | {"call_id": "call_abc_1"},
        {"type": "function_call_output", "call_id": "call_abc_0", "output": "3"},
        {"type": "function_call_output", "call_id": "call_abc_1", "output": [{"type": "input_text", "text": "4"}]},
        call | {"id": "fc_0p", "call_id": "call_0p"},
        call | {"id": "fc_0q", "call_id": "call_0q"},
        {"role": "assistant", "content": "another's words", "id": "msg_def"},
        call | {"call_id": "call_xyz_0"},
        {"role": "assistant", "content": "words", "phase": "final_answer"},
        call | {"call_id": "call_0r"},
    ]
    _, request, shape = of_responses(input=items)
    assert [call.id for each in request.messages for call in each.calls] == [
        each["call_id"] for each in items if each.get("type") == "function_call"
    ]
    without = tuple(
        each._replace(calls=tuple(call._replace(id="") for call in each.calls)) for each in request.messages
    )
    assert without == (
        QuotedMessage("system", "be brief"),
        QuotedMessage("user", "hi"),
        QuotedMessage("assistant", "see", id="abc", calls=(weather, weather)),
        QuotedMessage("tool", "3", call_id="call_abc_0"),
        QuotedMessage("tool", "4", call_id="call_abc_1"),
        QuotedMessage("assistant", "", calls=(weather, weather)),
        QuotedMessage("assistant", "another's words", id="def"),
        QuotedMessage("assistant", "", id="xyz", calls=(weather,)),
        QuotedMessage("assistant", "words"),
        QuotedMessage("assistant", "", calls=(weather,)),
    )
    assert shape.ignored == ("input.phase", "input.reasoning")


def test_a_json_schema_must_be_there() -> None:
    told = refused("text.format.schema", api=responses, text={"format": {"type": "json_schema", "name": "x"}}).message
    assert "it is missing" in told


def test_formats_and_functions() -> None:
    named = {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}
    _, request, shape = of_responses(text={"format": named})
    assert request.options == {"json_schema": SCHEMA}
    assert shape.echo["text"] == {"format": named | {"description": None}}
    assert of_responses(text={"format": {"type": "json_object"}})[1].options == {"json_schema": {"type": "object"}}
    choice: dict[str, Any] = {"type": "function", "name": "weather"}
    _, request, shape = of_responses(tools=[RESPONSES_TOOL], tool_choice=choice)
    assert tools(request) == ((ToolDefinition("weather", "", SCHEMA),), "named", "weather")
    assert shape.echo["tool_choice"] == choice
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [choice]}
    assert of_responses(tools=[RESPONSES_TOOL], tool_choice=allowed)[2].echo["tool_choice"] == allowed
    _, request, shape = of_responses(tools=[RESPONSES_TOOL], text={"format": named})
    assert (request.options, shape.calling) == ({"json_schema": SCHEMA}, "forced")
    refused("tools[0].parameters", api=responses, tools=[RESPONSES_TOOL | {"parameters": {"a": "b" * 70_000}}])


def test_what_is_only_repeated_is_short() -> None:
    refused("user", api=responses, user="x" * 513)
    refused("metadata", api=responses, metadata={str(number): "" for number in range(17)})
    refused("metadata.a", api=responses, metadata={"a": "x" * 513})
    assert of_responses(metadata={"a": "x" * 512})[2].echo["metadata"] == {"a": "x" * 512}


def test_logarithms_are_asked_for_in_two_ways() -> None:
    assert of_responses(include=["message.output_text.logprobs"])[1].logprobs == 0
    assert of_responses(top_logprobs=2)[1].logprobs == 2
    assert of_responses(top_logprobs=0)[1].logprobs is None
    refused("top_logprobs", api=responses, top_logprobs=21)


def test_an_answer_has_what_clients_check() -> None:
    _, _, shape = of_responses(
        model="m@audit", instructions="be brief", tools=[RESPONSES_TOOL], tool_choice="none", top_logprobs=2
    )
    found = response(shape, answered(shape, PLAIN))
    assert (found.object, found.model, found.status, found.error) == ("response", "m@audit", "completed", None)
    assert (found.output_text, found.instructions, found.incomplete_details) == ("hé there", "be brief", None)
    message = found.output[0]
    assert message.type == "message"
    part = message.content[0]
    assert part.type == "output_text"
    assert part.annotations == []
    assert [len(each.top_logprobs) for each in part.logprobs or ()] == [2]
    assert found.usage is not None
    assert (found.usage.input_tokens, found.usage.output_tokens, found.usage.total_tokens) == (20, 3, 23)
    assert found.usage.input_tokens_details.model_dump() == {
        "cached_tokens": 8,
        "cache_write_tokens": 0,
        "cache_write_tokens_details": None,
        "message_reused_tokens": 5,
    }
    assert found.usage.output_tokens_details.reasoning_tokens == 0


def test_an_answer_that_was_cut_is_incomplete() -> None:
    _, _, shape = of_responses(stream=True)
    answers = answered(shape, PLAIN._replace(ended="max_tokens"))
    found = response(shape, answers)
    assert found.incomplete_details is not None
    assert (found.status, found.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    last = events(shape, [AnswerDelta(0, "hé there")], answers)[-1]
    assert (last.type, last.response.status) == ("response.incomplete", "incomplete")


def test_items_lead_back_to_their_answer() -> None:
    _, _, shape = of_responses(tools=[RESPONSES_TOOL])
    answers = answered(shape, CALLED._replace(calls=(CALL, CALL)))
    assert [each.type for each in response(shape, answers).output] == ["message", "function_call", "function_call"]
    output = responses.whole(shape, answers)["output"]
    again = of_responses(input=[user("x"), *output])[1].messages
    calls = tuple(CALL._replace(id=ids.call(shape.ids[0], number)) for number in range(2))
    assert again[1:] == (QuotedMessage("assistant", "Let me see.", id=shape.ids[0], calls=calls),)
    in_chat = {"role": "assistant", "content": "hé there", "id": output[0]["id"]}
    assert of_chat(messages=[in_chat])[1].messages[0].id == shape.ids[0]
    alone = [{name: value for name, value in each.items() if name != "id"} for each in output[1:]]
    assert of_responses(input=alone)[1].messages == (QuotedMessage("assistant", "", id=shape.ids[0], calls=calls),)


def test_a_stream_says_the_same_as_the_whole() -> None:
    _, _, shape = of_responses(stream=True, top_logprobs=1, return_token_ids=True)
    answers = answered(shape, PLAIN)
    found = events(shape, [AnswerDelta(0, "hé", (LIKELY,)), AnswerDelta(0, ""), AnswerDelta(0, " there")], answers)
    assert [each.type for each in found] == [*TOLD[:4], TOLD[4], *TOLD[4:]]
    assert found[0].response.status == "in_progress"
    assert found[0].response.output == []
    assert [each.delta for each in found[4:6]] == ["hé", " there"]
    assert [len(each.logprobs) for each in found[4:7]] == [1, 0, 1]
    assert found[6].text == "hé there"
    assert found[-1].response == response(shape, answers)
    assert found[-2].item == found[-1].response.output[0]
    assert {each.item_id for each in found[3:8]} == {ids.item(shape.ids[0])}
    assert found[-1].response.token_ids == [7, 8]


def test_the_last_tokens_have_logarithms_too_where_they_have_no_text() -> None:
    _, _, shape = of_responses(stream=True, top_logprobs=1)
    answers = answered(shape, PLAIN._replace(text="hé", likely=(LIKELY,) * 3))
    found = events(shape, [AnswerDelta(0, "hé", (LIKELY,))], answers)
    assert [len(each.logprobs) for each in found if each.type == TOLD[4]] == [1, 2]
    assert found[-1].response == response(shape, answers)


def test_a_stream_tells_calls_when_the_answer_has_ended() -> None:
    _, _, shape = of_responses(stream=True, tools=[RESPONSES_TOOL])
    answers = answered(shape, CALLED)
    deltas = [AnswerDelta(0, "Let me see"), AnswerDelta(0, ". <ca"), AnswerDelta(0, "ll>{}</call>")]
    found = events(shape, deltas, answers, "<call>")
    assert [each.type for each in found] == [*TOLD[:4], TOLD[4], *TOLD[4:8], *CALLING, TOLD[-1]]
    assert "".join(each.delta for each in found if each.type == TOLD[4]) == "Let me see."
    added, delta, done, ended = found[9:13]
    assert (added.output_index, added.item.name, added.item.arguments) == (1, "weather", "")
    assert delta.delta == done.arguments == ended.item.arguments == CALL.arguments
    assert [each.item_id for each in (delta, done)] == [added.item.id, ended.item.id]
    assert found[-1].response.output[1] == ended.item
    assert found[-1].response == response(shape, answers)


def test_a_call_alone_has_no_message() -> None:
    _, _, shape = of_responses(stream=True, tools=[RESPONSES_TOOL], tool_choice="required")
    answers = answered(shape, Answer("", '{"name": …}', "stop", calls=(CALL,)))
    found = events(shape, [AnswerDelta(0, '{"name"'), AnswerDelta(0, ": …}")], answers)
    assert [each.type for each in found] == [*TOLD[:2], *CALLING, TOLD[-1]]
    assert found[2].output_index == 0
    assert len(found[-1].response.output) == 1


def test_an_answer_without_words_is_a_message() -> None:
    _, _, shape = of_responses(stream=True)
    found = events(shape, [], answered(shape, Answer("", "", "stop")))
    assert [each.type for each in found] == [*TOLD[:4], *TOLD[5:]]
    assert found[-1].response.output_text == ""


def test_an_error_in_mid_stream_is_an_error_to_clients() -> None:
    _, _, shape = of_responses(stream=True)
    stream = responses.ResponsesStream(shape)
    begun = len(stream.begin())
    failed, told = data(
        part + b"\n\n" for part in stream.fault(ApiError(429, "too much", code="x")).split(b"\n\n")[:-1]
    )
    assert EVENTS.validate_python(failed).type == "response.failed"
    assert failed["response"]["error"] == {"code": "rate_limit_exceeded", "message": "too much"}
    event = EVENTS.validate_python(told)
    assert (event.type, event.sequence_number) == ("error", begun + 1)
    assert told["error"]["message"] == told["message"] == "too much"


def test_a_response_does_not_tell_which_stop_string_ended_it_as_vllm_does_not() -> None:
    _, _, shape = of_responses(stop="END")
    told = response(shape, answered(shape, Answer("msg_1", "Hello", "stop_string", reason="END")))
    assert (told.status, "stop_reason" in told.model_dump_json()) == ("completed", False)
