"""Request bodies for both APIs, answers to them, and readers of the server's output with the types of `openai`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from agentcho.serve.api import chat, responses
from agentcho.serve.api.answer_shape import Shape
from agentcho.serve.api.limits import RequestLimits
from agentcho.serve.api.models import RequestTarget
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import Answer, AnswerDelta, Answers, ChatRequest, TokenLogprob, TokenUsage, Tools

LIMITS = RequestLimits()
EVENTS: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
USAGE = TokenUsage(prompt=20, completion=3, exact=8, reused=5)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
RESPONSES_TOOL = {"type": "function", "name": "weather", "parameters": SCHEMA}
LIKELY = TokenLogprob(
    7, "hé".encode(), -0.25, (TokenLogprob(7, "hé".encode(), -0.25), TokenLogprob(9, b"ho", float("-inf")))
)
Read = tuple[RequestTarget, ChatRequest, Shape]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(**more: Any) -> dict[str, Any]:
    """The body of a chat completion request."""
    return {"model": "m", "messages": [user("hello")]} | more


def sent(**more: Any) -> dict[str, Any]:
    """The body of a request to /v1/responses."""
    return {"model": "m", "input": "hello"} | more


def of_chat(limits: RequestLimits = LIMITS, **more: Any) -> Read:
    return chat.parsed(json.dumps(said(**more)).encode(), limits)


def of_responses(limits: RequestLimits = LIMITS, **more: Any) -> Read:
    return responses.parsed(json.dumps(sent(**more)).encode(), limits)


def tools(request: ChatRequest) -> Tools:
    assert request.tools is not None
    return request.tools


def refused(param: str | None, limits: RequestLimits = LIMITS, api: Any = chat, **more: Any) -> ApiError:
    """The 400 error for a body with these parameters."""
    body = said(**more) if api is chat else sent(**more)
    with pytest.raises(ApiError) as caught:
        api.parsed(json.dumps(body).encode(), limits)
    assert (caught.value.status, caught.value.param) == (400, param), caught.value.message
    return caught.value


def answered(shape: Shape, *answers: Answer, usage: TokenUsage = USAGE) -> Answers:
    """The answers, with the ids that the request assigned to them."""
    return Answers(tuple(each._replace(id=id) for each, id in zip(answers, shape.ids, strict=True)), usage)


def data(sent: Iterable[bytes]) -> list[dict[str, Any]]:
    """The data of server-sent events, without the final `[DONE]`."""
    found = []
    for event in sent:
        assert event.isascii()
        assert event.endswith(b"\n\n")
        lines = event.decode().splitlines()
        assert lines[-1] == ""
        told = next(line.removeprefix("data: ") for line in lines if line.startswith("data: "))
        if told != "[DONE]":
            found.append(json.loads(told))
            assert lines[0] in (f"event: {found[-1].get('type')}", f"data: {told}")
    return found


def chunks(shape: Shape, deltas: Iterable[AnswerDelta], answers: Answers, opening: str | None = None) -> list[Any]:
    """All chunks of a streamed chat."""
    stream = chat.ChatStream(shape, opening)
    sent = [*stream.begin(), *(event for delta in deltas for event in stream.delta(delta)), *stream.end(answers)]
    assert sent[-1] == b"data: [DONE]\n\n"
    return [ChatCompletionChunk.model_validate(each) for each in data(sent)]


def events(shape: Shape, deltas: Iterable[AnswerDelta], answers: Answers, opening: str | None = None) -> list[Any]:
    """All events of a streamed response."""
    stream = responses.ResponsesStream(shape, opening)
    sent = [*stream.begin(), *(event for delta in deltas for event in stream.delta(delta)), *stream.end(answers)]
    found = [EVENTS.validate_python(each) for each in data(sent)]
    assert [each.sequence_number for each in found] == list(range(len(found)))
    assert [each.type for each in found] == [each["type"] for each in data(sent)]
    return found


def completion(shape: Shape, answers: Answers) -> ChatCompletion:
    return ChatCompletion.model_validate(json.loads(json.dumps(chat.whole(shape, answers), allow_nan=False)))


def response(shape: Shape, answers: Answers) -> Response:
    return Response.model_validate(json.loads(json.dumps(responses.whole(shape, answers), allow_nan=False)))
