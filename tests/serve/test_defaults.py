"""Parameters that clients send by default or often, sent to a real server of the understudy by the `openai` client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import openai
import pytest

from .bodies import CHAT_TOOL, RESPONSES_TOOL, SCHEMA, user
from .test_process import server

pytestmark = pytest.mark.server
ASKED = {"model": "understudy", "temperature": 0}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server."""
    with server(tmp_path_factory.mktemp("serve")) as (_, client):
        yield str(client.base_url).rstrip("/")


@pytest.fixture(params=["/v1", "/s/talk/ann/v1"], ids=["no society", "society"])
def asked(root: str, request: pytest.FixtureRequest) -> Any:
    """An `openai` client; typed Any because its types differ between versions."""
    return openai.OpenAI(base_url=root + request.param, api_key="none", max_retries=0)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_tools_without_a_choice_are_answered(asked: Any, stream: bool) -> None:
    more: Any = {"stream": True} if stream else {}
    chat = asked.chat.completions.create(messages=[user("hi")], tools=[CHAT_TOOL], max_tokens=16, **ASKED, **more)
    response = asked.responses.create(input="hi", tools=[RESPONSES_TOOL], max_output_tokens=16, **ASKED, **more)
    if stream:
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chat)
        assert any(event.type == "response.output_text.delta" and event.delta for event in response)
    else:
        assert chat.choices[0].message.content
        assert response.output_text


def test_a_call_that_was_required_is_followed_by_what_is_left_to_the_model(asked: Any) -> None:
    chat, tools = asked.chat.completions, [CHAT_TOOL]
    first = chat.create(messages=[user("hi")], tools=tools, tool_choice="required", max_tokens=64, **ASKED)
    message = first.choices[0].message
    [call] = message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    after = chat.create(messages=[user("hi"), message, result], tools=tools, max_tokens=16, **ASKED)
    assert after.choices[0].message.content
    assert after.usage.prompt_tokens > first.usage.prompt_tokens


def test_penalties_change_what_is_said_and_say_it_again(asked: Any) -> None:
    def said(**more: Any) -> str:
        answer = asked.chat.completions.create(messages=[user("What is 3 x 4?")], max_tokens=16, **ASKED, **more)
        return str(answer.choices[0].message.content)

    plain = said()
    for more in ({"logit_bias": {"50": 100}}, {"extra_body": {"repetition_penalty": 1000.0}}):
        assert said(**more) == said(**more) != plain
    assert said(presence_penalty=2.0, frequency_penalty=2.0)
    assert said(logit_bias={"1": 0}, presence_penalty=0.0, extra_body={"max_tokens": 16.0}) == plain


class Said(NamedTuple):
    """A greedy answer, received whole or assembled from a stream."""

    text: str
    ids: list[int]
    finish: str
    reason: int | str | None


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def say(asked: Any, request: pytest.FixtureRequest) -> Callable[..., Said]:
    """Requests an answer with some of vLLM's parameters."""

    def ask(**more: Any) -> Said:
        how: Any = {"messages": [user("What is 3 x 4?")], "max_tokens": 12, **ASKED}
        found = asked.chat.completions.create(
            **how, extra_body={"return_token_ids": True, **more}, stream=request.param
        )
        if not request.param:
            choice = found.choices[0]
            return Said(choice.message.content, choice.token_ids, choice.finish_reason, choice.stop_reason)
        choices = [chunk.choices[0] for chunk in found]
        text = "".join(each.delta.content or "" for each in choices)
        return Said(text, choices[-1].token_ids, choices[-1].finish_reason, choices[-1].stop_reason)

    return ask


def test_what_vllm_ends_an_answer_by_ends_it(say: Callable[..., Said]) -> None:
    plain = say()
    last = plain.ids[2]
    upto = plain.ids[: plain.ids.index(last) + 1]
    cut, kept = (say(stop_token_ids=[last], include_stop_str_in_output=keeps) for keeps in (False, True))
    assert cut[1:] == kept[1:] == (upto, "stop", last)
    assert plain.text.startswith(kept.text)
    assert kept.text.startswith(cut.text)
    assert len(kept.text) > len(cut.text)
    stop = plain.text[2:4]
    assert say(stop=stop)[::3] == (plain.text[:2], stop)
    assert say(stop=stop, include_stop_str_in_output=True).text == plain.text[:4]
    later = say(stop=stop, min_tokens=6)
    assert len(later.ids) > 6
    assert stop in later.text[:4]
    assert last not in say(stop_token_ids=[last], min_tokens=6).ids[:6]
    assert (len(say(ignore_eos=True).ids), say(ignore_eos=True).finish) == (12, "length")


def test_what_vllm_limits_an_answer_to_limits_it(say: Callable[..., Said]) -> None:
    plain = say()
    first = plain.text.split()[0]
    assert not say(bad_words=[first]).text.startswith(first)
    among = sorted({*plain.ids[1:]})
    assert {*say(allowed_token_ids=among).ids} <= {*among}
    assert say(structured_outputs={"choice": ["tin", "tins"]}, tools=[CHAT_TOOL]).text in ("tin", "tins", "")
    assert say(guided_choice=["yes", "no"], min_tokens=9, bad_words=["yes", "no"]).text in ("yes", "no")


@pytest.mark.parametrize("param", ["stop_token_ids", "allowed_token_ids", "logit_bias"])
def test_an_id_that_the_model_does_not_have_is_told_by_its_parameter(asked: Any, param: str) -> None:
    value: Any = {"1000000": 1} if param == "logit_bias" else [1_000_000]
    with pytest.raises(openai.BadRequestError) as caught:
        asked.chat.completions.create(messages=[user("hi")], extra_body={param: value}, **ASKED)
    assert (caught.value.param, caught.value.status_code) == (param, 400)


def test_a_refused_first_request_opens_no_society(root: str) -> None:
    asked: Any = openai.OpenAI(base_url=f"{root}/s/empty/ann/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.BadRequestError):
        asked.chat.completions.create(messages=[user("word " * 9000)], model="understudy@audit")
    assert httpx.get(f"{root}/s/empty").status_code == 404
    assert asked.chat.completions.create(messages=[user("hi")], model="understudy@enforce", max_tokens=4).choices
    assert httpx.delete(f"{root}/s/empty").status_code == 200


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_too_few_tokens_for_a_call_or_a_schema_end_by_length(asked: Any, stream: bool) -> None:
    more: Any = {"stream": True} if stream else {}
    for held in (
        {"tools": [CHAT_TOOL], "tool_choice": "required"},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
    ):
        said = asked.chat.completions.create(messages=[user("hi")], max_tokens=3, **held, **ASKED, **more)
        last = list(said)[-1] if stream else said
        assert last.choices[0].finish_reason == "length"
        if not stream:
            content = last.choices[0].message.content
            assert (content == "") == ("tools" in held)
    said = asked.responses.create(
        input="hi", tools=[RESPONSES_TOOL], tool_choice="required", max_output_tokens=3, **ASKED, **more
    )
    last = list(said)[-1].response if stream else said
    assert (last.status, last.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert last.output_text == ""


def test_a_schema_that_cannot_be_used_is_told_by_the_field_of_the_client(asked: Any) -> None:
    never = {"type": "object", "properties": {"a": {"enum": []}}, "required": ["a"]}
    with pytest.raises(openai.BadRequestError) as caught:
        asked.chat.completions.create(
            messages=[user("hi")],
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": never}},
            **ASKED,
        )
    assert caught.value.param == "response_format"
    assert "json_schema" not in caught.value.message


def test_a_conversation_goes_on_by_id(asked: Any) -> None:
    first = asked.responses.create(input="What is 3 x 4?", max_output_tokens=16, **ASKED)
    second = asked.responses.create(input="And?", previous_response_id=first.id, max_output_tokens=8, **ASKED)
    assert (first.store, second.previous_response_id) == (True, first.id)
    assert second.usage.input_tokens > first.usage.input_tokens
    assert second.usage.input_tokens_details.cached_tokens > 0
    with pytest.raises(openai.NotFoundError):
        asked.responses.create(input="And?", previous_response_id="resp_none", **ASKED)
