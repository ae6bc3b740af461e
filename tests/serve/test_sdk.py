"""How the `openai` client reads our answers and streams, and what it sends back. No socket is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.lib.streaming.chat import ContentDeltaEvent
from pydantic import BaseModel

from agentcho.serve.api import chat, responses
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import Answer, AnswerDelta, Answers, ChatRequest, ToolCall

from .bodies import LIMITS, SCHEMA, USAGE, answered, user

CALL = ToolCall("City", '{"city": "Bern"}')
CALLED = Answer("", "Let me see. <call>", "stop", calls=(CALL,), before="Let me see.")
JSON = Answer("", '{"city": "Bern"}', "stop")


class City(BaseModel):
    city: str


class Server:
    """Gives every request the same answer, and keeps the last request. With `fault`, streams end with an error."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.fault = answer, False
        self.request = ChatRequest(())

    def __call__(self, asked: httpx.Request) -> httpx.Response:
        api: Any = chat if asked.url.path == "/v1/chat/completions" else responses
        try:
            _, self.request, shape = api.parsed(asked.content, LIMITS)
        except ApiError as error:
            return httpx.Response(error.status, json=error.to_json())
        answers = answered(shape, self.answer)
        if not shape.stream:
            return httpx.Response(200, json=api.whole(shape, answers))
        sent = b"".join(
            self._events((chat.ChatStream if api is chat else responses.ResponsesStream)(shape, "<call>"), answers)
        )
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=sent)

    def _events(self, stream: Any, answers: Answers) -> Iterator[bytes]:
        yield from stream.begin()
        for letter in self.answer.text:
            yield from stream.delta(AnswerDelta(0, letter))
        if self.fault:
            yield stream.fault(ApiError(500, "it failed"))
        else:
            yield from stream.end(answers)


@pytest.fixture
def server() -> Server:
    return Server(CALLED)


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    http: Any  # its type differs between versions of `openai`
    with httpx.Client(transport=httpx.MockTransport(server)) as http:
        yield openai.OpenAI(base_url="http://localhost/v1", api_key="none", max_retries=0, http_client=http)


def test_a_streamed_call_of_a_chat_comes_back_as_it_was_said(server: Server, client: openai.OpenAI) -> None:
    tool, asked = openai.pydantic_function_tool(City), client.chat.completions
    with asked.stream(
        model="m", messages=[{"role": "user", "content": "x"}], tools=[tool], stream_options={"include_usage": True}
    ) as stream:
        told = [event.delta for event in stream if isinstance(event, ContentDeltaEvent)]
        found = stream.get_final_completion()
    assert "".join(told) == CALLED.before
    assert found.usage is not None
    assert found.usage.prompt_tokens == USAGE.prompt
    message = found.choices[0].message
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.parsed_arguments == City(city="Bern")
    again: Any = [user("x"), message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "3"}]
    asked.create(model="m", messages=again, tools=[tool])
    quoted, result = server.request.messages[1:]
    assert (quoted.text, bool(quoted.id)) == (CALLED.before, True)
    assert quoted.calls == (CALL._replace(id=f"call_{quoted.id}_0"),)
    assert result.call_id == quoted.calls[0].id


def test_a_streamed_call_of_a_response_comes_back_as_it_was_said(server: Server, client: openai.OpenAI) -> None:
    tool: Any = {"type": "function", "name": "City", "parameters": SCHEMA, "strict": False}
    with client.responses.stream(model="m", input="x", tools=[tool]) as stream:
        told = [event.delta for event in stream if event.type == "response.output_text.delta"]
        found = stream.get_final_response()
    assert "".join(told) == found.output_text == CALLED.before
    again: Any = [user("x"), *found.output, {"type": "function_call_output", "call_id": "c", "output": "3"}]
    client.responses.create(model="m", input=again, tools=[tool])
    quoted = server.request.messages[1]
    assert (quoted.text, quoted.calls) == (CALLED.before, (CALL._replace(id=f"call_{quoted.id}_0"),))


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of openai, about what it parsed
def test_what_is_parsed_comes_back_as_text(server: Server, client: openai.OpenAI) -> None:
    server.answer = JSON
    message = (
        client.chat.completions.parse(model="m", messages=[{"role": "user", "content": "x"}], response_format=City)
        .choices[0]
        .message
    )
    assert message.parsed == City(city="Bern")
    again: Any = [user("x"), message]
    client.chat.completions.create(model="m", messages=again)
    assert server.request.messages[1].text == JSON.text
    found = client.responses.parse(model="m", input="x", text_format=City)
    assert found.output_parsed == City(city="Bern")
    more: Any = [user("x"), *found.output]
    client.responses.create(model="m", input=more)
    assert server.request.messages[1].text == JSON.text


def test_an_error_in_mid_stream_is_raised(server: Server, client: openai.OpenAI) -> None:
    server.fault = True
    with pytest.raises(openai.APIError, match="it failed"):
        list(client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}], stream=True))
    with pytest.raises(openai.APIError, match="it failed"):
        list(client.responses.create(model="m", input="x", stream=True))


def test_a_refusal_names_its_parameter(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}], presence_penalty=3)
    assert (caught.value.param, caught.value.type) == ("presence_penalty", "invalid_request_error")
