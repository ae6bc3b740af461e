"""Requests to real servers: ours, and that of transformers, on the same model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentcho import Sampling
from agentcho.config import ModelConfig
from agentcho.errors import AnswerInvalid, ContextOverflow, EndpointFailed
from agentcho.integrations.endpoints.endpoint import open_endpoint
from agentcho.protocol.text_calls import PromptMessage, TextCall, TextPort, TextReply
from agentcho.serve.web.keys import add_key

from .served import agentcho_served, transformers_served

PROMPT = (PromptMessage("system", None, "You are Bob."), PromptMessage("user", None, "Is snow white or black?"))
MOVE = {"type": "string", "enum": ["cooperate", "defect"]}
SCHEMA = {"type": "object", "properties": {"move": MOVE}, "required": ["move"], "additionalProperties": False}
LONG = (PromptMessage("user", None, "word " * 9000),)


@pytest.fixture(scope="module")
def ours() -> Iterator[ModelConfig]:
    with agentcho_served() as config:
        yield config


@pytest.fixture(scope="module")
def theirs() -> Iterator[ModelConfig]:
    with transformers_served() as config:
        yield config


@pytest.fixture(
    params=[pytest.param("ours", marks=pytest.mark.server), pytest.param("theirs", marks=pytest.mark.clients)]
)
def each(request: pytest.FixtureRequest) -> ModelConfig:
    """Each of the two servers."""
    found: ModelConfig = request.getfixturevalue(request.param)
    return found


@asynccontextmanager
async def opened(config: ModelConfig, **more: Any) -> AsyncIterator[TextPort]:
    port = open_endpoint(config.model_copy(update={"retries": 0, **more}), "far")
    try:
        yield port
    finally:
        await port.aclose()


def asked(config: ModelConfig, call: TextCall, **more: Any) -> TextReply:
    async def work() -> TextReply:
        async with opened(config, **more) as port:
            return await port.ask(call)

    return anyio.run(work)


def said(**options: Any) -> TextCall:
    """A call for an answer, greedy by default."""
    return TextCall(PROMPT, sampling=Sampling(**{"max_tokens": 24, "temperature": 0} | options))


def test_an_answer_comes_in_pieces_with_what_it_took(each: ModelConfig) -> None:
    """From the second answer on: the first tells whether the model thinks, so it is shown only as a whole."""
    pieces = list[str]()

    async def work() -> TextReply:
        async with opened(each) as port:
            await port.ask(said())
            return await port.ask(replace(said(), on_text=pieces.append))

    reply = anyio.run(work)
    assert "".join(pieces) == reply.text
    assert len(pieces) > 1
    assert reply.stopped == "stop"
    assert reply.spent.prompt == 22
    assert 1 <= (reply.spent.completion or 0) <= 24
    assert 0 < reply.first < reply.seconds


@pytest.mark.clients
def test_both_say_the_same_where_nothing_is_drawn(ours: ModelConfig, theirs: ModelConfig) -> None:
    talk = (
        *PROMPT,
        PromptMessage("assistant", "bob", "Hello there.", own=True),
        PromptMessage("user", None, "What will you do?"),
    )
    for prompt in (PROMPT, talk):
        call = TextCall(prompt, sampling=Sampling(max_tokens=24, temperature=0))
        assert asked(ours, call).text == asked(theirs, call).text


def test_a_seed_says_what_is_drawn(each: ModelConfig) -> None:
    texts = [asked(each, said(temperature=1.0, seed=seed)).text for seed in (1, 1, 2, 3, 4)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_an_answer_is_cut_at_its_limit(each: ModelConfig) -> None:
    reply = asked(each, said(max_tokens=2))
    assert (reply.stopped, reply.spent.completion) == ("max_tokens", 2)


def test_a_stop_string_is_no_part_of_an_answer(each: ModelConfig) -> None:
    whole = asked(each, said()).text
    stop = whole[2:4]
    assert asked(each, said(stop=(stop,))).text == whole[: whole.index(stop)]


def test_a_header_is_no_part_of_an_answer(each: ModelConfig) -> None:
    call = TextCall(PROMPT, "To Ann: ", Sampling(max_tokens=24, temperature=0))
    assert not asked(each, call).text.lstrip().startswith("To Ann:")


def test_a_call_that_is_given_up_leaves_room_for_the_next(each: ModelConfig) -> None:
    async def work() -> None:
        async with opened(each, concurrency=1) as port:
            for _ in range(3):
                async with anyio.create_task_group() as group:
                    leave = group.cancel_scope.cancel
                    call = TextCall(PROMPT, sampling=Sampling(max_tokens=500), on_text=lambda text: leave())  # noqa: B023
                    group.start_soon(port.ask, call)
            assert (await port.ask(said(max_tokens=1))).spent.completion == 1

    anyio.run(work)


def test_many_at_once_are_answered_each(each: ModelConfig) -> None:
    found = dict[int, str]()

    async def one(port: TextPort, number: int) -> None:
        found[number] = (await port.ask(said(max_tokens=8))).text

    async def work() -> None:
        async with opened(each, concurrency=3) as port, anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(one, port, number)

    anyio.run(work)
    assert len(found) == 8
    assert len(set(found.values())) == 1


@pytest.mark.server
def test_ours_is_held_to_choices_and_schemas(ours: ModelConfig) -> None:
    assert asked(ours, said(choices=("white", "black"))).text in ("white", "black")
    assert asked(ours, said(json_schema=SCHEMA)).text.startswith('{"move":"')


@pytest.mark.server
@pytest.mark.parametrize(("server", "can"), [("openai", None), ("vllm", ("choices", "schema", "seed", "salt"))])
def test_ours_can_be_asked_as_others_are(ours: ModelConfig, server: str, can: Any) -> None:
    """OpenAI's form of choices is a schema with one key, vLLM's a list of texts; our server accepts both."""
    for call in (said(choices=("white", "black"), stop=("answer",)), said(json_schema=SCHEMA)):
        reply = asked(ours, call, server=server, can=can)
        assert reply.text in ("white", "black") or reply.text.startswith('{"move":"')
        assert reply.spent.requests == 1


@pytest.mark.clients
@pytest.mark.parametrize("can", [None, ("choices", "schema", "seed")])
def test_theirs_is_found_not_to_be(theirs: ModelConfig, can: Any) -> None:
    """The small model does not follow instructions in words, and the server lacks the fields configured for it."""
    for call in (said(json_schema=SCHEMA), said(choices=("white", "black"))):
        with pytest.raises(AnswerInvalid, match="gave 3 answers, none of which was"):
            asked(theirs, call, can=can)


@pytest.mark.server
def test_ours_keeps_caches_apart_by_salts(ours: ModelConfig) -> None:
    salts = [None, "one" * 8, "one" * 8, "two" * 8]
    spent = [asked(ours, TextCall(PROMPT, salt=salt, sampling=said().sampling)).spent for salt in salts]
    assert spent[1].cached == 0
    assert spent[2].cached
    assert spent[3].cached == 0


@pytest.mark.clients
def test_theirs_is_sent_no_salt_for_it_takes_none(theirs: ModelConfig) -> None:
    call = TextCall(PROMPT, salt="one" * 8, sampling=Sampling(max_tokens=2))
    assert asked(theirs, call).text
    with pytest.raises(EndpointFailed, match="HTTP 422") as found:
        asked(theirs, call, can=("salt",))
    assert not found.value.transient


@pytest.mark.server
def test_a_prompt_that_is_too_long_for_ours_is_refused(ours: ModelConfig) -> None:
    with pytest.raises(EndpointFailed, match="context_length_exceeded") as found:
        asked(ours, TextCall(LONG))
    assert (found.value.status, found.value.transient) == (400, False)


@pytest.mark.clients
def test_a_prompt_that_is_too_long_for_theirs_is_found_where_the_context_is_known(theirs: ModelConfig) -> None:
    with pytest.raises(ContextOverflow):
        asked(theirs, TextCall(LONG, sampling=Sampling(max_tokens=2)), context=8192)


@pytest.mark.server
def test_ours_takes_its_key_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = tmp_path / "keys"
    monkeypatch.setenv("GOOD_KEY", add_key(keys, tenant="ann"))
    monkeypatch.setenv("BAD_KEY", "ak-wrong")
    with agentcho_served("--keys", str(keys)) as config:
        assert asked(config, said(), key_env="GOOD_KEY").text
        for more in ({"key_env": "BAD_KEY"}, {}):
            with pytest.raises(EndpointFailed, match="HTTP 401"):
                asked(config, said(), **more)
        with pytest.raises(EndpointFailed, match="HTTP 404"):
            asked(config, said(), key_env="GOOD_KEY", model="openai:other")
