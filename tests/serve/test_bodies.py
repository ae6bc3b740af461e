"""Any body is either a valid request or gives one error, which says what is wrong without quoting its words."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcho.engine.tools import CallPieces, ToolFormat
from agentcho.serve.api import chat, responses
from agentcho.serve.api.tool_call_buffer import WHOLE, ToolCallBuffer
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import Answer, ChatRequest

from .bodies import CHAT_TOOL, LIMITS, RESPONSES_TOOL, said, sent, user

CANARY = "canary-7c1f"
APIS = (chat, responses)
FIELDS = sorted(
    {
        field.alias or name
        for body in (chat.ChatBody, responses.ResponsesBody)
        for name, field in body.model_fields.items()
    }
    | {"user", "metadata", "logit_bias", "functions", "presence_penalty", "guided_json", "background", "truncation"}
)
NAMES = """text type role user tool content function name message auto json_schema m@audit schema tool_calls call_a_0 #
function_call arguments call_id output assistant id"""
WORDS = st.sampled_from(NAMES.split())
LEAVES = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | WORDS | st.text(max_size=5)
JSON: st.SearchStrategy[Any] = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5), max_leaves=12
)


def outcome(api: Any, body: bytes) -> ApiError | None:
    """The error of a body, checked to be a well-formed client error; None if the body is a request."""
    try:
        target, request, shape = api.parsed(body, LIMITS)
    except ApiError as error:
        found: ApiError | None = error
    else:
        found = None
    if found is not None:
        assert 400 <= found.status < 500
        assert 0 < len(found.message) < 500
        json.dumps(found.to_json()).encode()
        return found
    assert isinstance(request, ChatRequest)
    assert len(request.ids) == len(set(request.ids)) == request.choices
    assert target.model
    assert shape.ids == request.ids
    return None


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=60))
def test_bytes_are_refused(body: bytes) -> None:
    for api in APIS:
        assert outcome(api, body) is not None


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), JSON, max_size=4))
def test_any_value_anywhere_is_a_request_or_an_error(more: dict[str, Any]) -> None:
    outcome(chat, json.dumps(said() | more).encode())
    outcome(responses, json.dumps(sent() | more).encode())


@settings(deadline=None, max_examples=60)
@given(st.lists(st.dictionaries(WORDS, JSON, max_size=6), min_size=1, max_size=4))
def test_any_messages_are_a_request_or_an_error(messages: list[Any]) -> None:
    outcome(chat, json.dumps(said(messages=messages, tools=[CHAT_TOOL])).encode())
    outcome(responses, json.dumps(sent(input=messages, tools=messages)).encode())


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'"x"',
        b"{",
        b'{"model": NaN}',
        b'{"temperature": Infinity}',
        b'{"model": "\xff"}',
        b'{"model": "\\ud800"}',
        b'\xef\xbb\xbf{"model": "m"}',
        b'{"a":' * 10_000,
        b"[" * 100_000,
        b'{"model": ' + b"9" * 10_000 + b"}",
        json.dumps(said()).encode("utf-16"),
    ],
)
def test_what_is_no_json_object_is_refused(api: Any, body: bytes) -> None:
    error = outcome(api, body)
    assert error is not None
    assert (error.status, error.param) == (400, None)


def test_what_is_nested_too_deeply_is_told_apart_from_what_is_no_json() -> None:
    deep, broken = outcome(chat, b"[" * 1000), outcome(chat, b"[")
    assert deep is not None
    assert broken is not None
    assert "too many objects and lists inside each other" in deep.message
    assert "not JSON in UTF-8" in broken.message


def test_a_number_that_has_no_end_is_refused() -> None:
    body = json.dumps(said(temperature=9)).replace("9", "1e999").encode()
    error = outcome(chat, body)
    assert error is not None
    assert error.param == "temperature"


def test_a_body_of_too_many_parts_is_not_read() -> None:
    few = LIMITS._replace(parts=20)
    much: list[Any] = [[{}] * 12, [[]] * 12, {str(number): 0 for number in range(12)}]
    for more in much:
        with pytest.raises(ApiError, match="names; this server takes at most 20"):
            chat.parsed(json.dumps(said(metadata=more)).encode(), few)
    chat.parsed(json.dumps(said(metadata=[{}] * 3)).encode(), few)


@pytest.mark.parametrize("api", APIS)
def test_a_thousand_mistakes_are_one_error(api: Any) -> None:
    field = "messages" if api is chat else "input"
    error = outcome(api, json.dumps({"model": "m", field: [{}] * 4000}).encode())
    assert error is not None
    assert error.param == f"{field}[0].role"
    for name, most in (("messages", LIMITS.messages), ("input", LIMITS.messages), ("tools", LIMITS.tools)):
        error = outcome(api, json.dumps({"model": "m", name: [{}] * (most + 1)}).encode())
        assert error is not None
        assert (error.param, f"at most {most}" in error.message) == (name, True)


def _leaves(value: Any, put: Any) -> list[Any]:
    """Copies of a value, each with another leaf replaced by what `put` makes of it, or with a key added."""
    if isinstance(value, dict):
        inside = [{**value, key: each} for key, old in value.items() for each in _leaves(old, put)]
        return [*inside, {**value, "unheard": CANARY}]
    if isinstance(value, list):
        return [[*value[:at], each, *value[at + 1 :]] for at, old in enumerate(value) for each in _leaves(old, put)]
    found: list[Any] = put(value)
    return found


def _bodies(api: Any) -> list[Any]:
    """Bodies with canaries in all of their texts, each invalid in another place."""
    call = {"id": CANARY, "type": "function", "function": {"name": "weather", "arguments": CANARY}}
    messages: list[Any] = [
        user(CANARY),
        {"role": "system", "content": [{"type": "text", "text": CANARY}], "name": "ann"},
        {"role": "assistant", "content": CANARY, "tool_calls": [call]},
        {"role": "tool", "content": CANARY, "tool_call_id": CANARY},
    ]
    items: list[Any] = [
        user(CANARY),
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": CANARY}]},
        {"type": "function_call", "id": CANARY, "call_id": CANARY, "name": "weather", "arguments": CANARY},
        {"type": "function_call_output", "call_id": CANARY, "output": CANARY},
    ]
    whole = said(messages=messages, tools=[CHAT_TOOL], structured_outputs={"choice": [CANARY]}, stop=[CANARY])
    if api is responses:
        whole = sent(input=items, instructions=CANARY, tools=[RESPONSES_TOOL], text={"format": {"type": "text"}})
    wrong = ([CANARY], {CANARY: CANARY}, {"type": CANARY}, 3, CANARY, f"{CANARY} " * 40)
    return _leaves(whole, lambda old: [each for each in wrong if type(each) is not type(old) or each != old])


@pytest.mark.parametrize("api", APIS)
def test_no_error_tells_words_of_a_message(api: Any) -> None:
    errors = [error for body in _bodies(api) if (error := outcome(api, json.dumps(body).encode())) is not None]
    assert len(errors) > 50
    words = [str(error) + json.dumps(error.to_json()) for error in errors if error.param != CANARY]
    assert not [each for each in words if CANARY in each]
    assert {error.param.partition("[")[0] for error in errors if error.param} >= {"tools"}


FORMATS = {
    "{": ToolFormat(cast(Any, None)),
    "<call>": ToolFormat(cast(Any, None), CallPieces('<call>{"name": "', tail="}</call>")),
}


def visible(text: str, opening: str) -> str:
    """The beginning of an unfinished text that is certain to precede the first call, however the text continues."""
    squeezed = "".join(text.split())
    ways = WHOLE if opening == "{" else ("{",)
    if squeezed.startswith(ways) or any(way.startswith(squeezed) for way in ways):
        return ""
    opening = "<tool_call>" if opening == "{" else opening
    ends = (size for size in range(len(opening), 0, -1) if text.endswith(opening[:size]))
    at = text.find(opening)
    return (text[:at] if at >= 0 else text[: len(text) - next(ends, 0)]).rstrip()


@settings(deadline=None)
@given(
    st.text("<cal>{ x", max_size=30) | st.text("`json{[ <tool_call>", max_size=30),
    st.lists(st.integers(0, 30), max_size=6),
    st.sampled_from(sorted(FORMATS)),
)
def test_as_much_is_shown_as_cannot_become_a_call(text: str, cuts: list[int], opening: str) -> None:
    assert FORMATS[opening].opening == opening
    held, places = ToolCallBuffer(opening), sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    shown = "".join(held.add(text[start:end]) for start, end in pairwise(places))
    assert shown == visible(text, opening)
    assert shown + held.rest(Answer("", text, "stop")) == text
    whole = text + '<call>{"name": "f", "arguments": {}}</call>'
    if opening == "{":
        whole = whole.replace("call>", "tool_call>")
    before, calls = FORMATS[opening].read(whole)
    assert shown + held.rest(Answer("", whole, "stop", calls=calls, before=before)) == before


@given(st.lists(st.text(max_size=3)))
def test_without_calls_all_is_shown_and_with_calls_alone_nothing(texts: list[str]) -> None:
    free, forced = ToolCallBuffer(None), ToolCallBuffer("")
    assert [free.add(each) for each in texts] == texts
    assert [forced.add(each) for each in texts] == [""] * len(texts)
    assert free.empty
    assert not forced.empty
