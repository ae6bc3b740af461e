"""Chat template variables in requests: their effect on prompts and thoughts, and where they change nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agentcho import RunConfig
from agentcho.engine.template import derive
from agentcho.serve.api import responses
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import Answers, Caller, ChatRequest, ToolDefinition, Tools
from agentcho.serve.sharing.request_prompt import chat_of
from agentcho.serve.sharing.served import ServedModel, Serving
from tests.engine import templates
from tests.engine.families import Family
from tests.engines import Engines
from tests.serve.bodies import of_chat, of_responses, refused
from tests.serve.stage import agent, play, user
from tests.serve.test_exact import Fed

OFF, ON = {"enable_thinking": False}, {"enable_thinking": True}
HARD = {"reasoning_effort": "high"}
TALK = (user("What shall we build?"),)


def asked(variables: dict[str, Any], talk: Any = TALK, tokens: int = 3, **more: Any) -> ChatRequest:
    """A request with these template variables."""
    named: dict[str, Any] = {"variables": variables, "asked": frozenset(variables)}
    return ChatRequest(talk, {"temperature": 0.0}, tokens, **named, **more)


@pytest.mark.parametrize(
    ("style", "given"),
    [("thoughtful", OFF), ("opened", OFF), ("emptied", ON), ("harmony", HARD), ("appended", OFF), ("llama3", OFF)],
)
def test_a_prompt_is_the_stock_one_with_the_request_s_variables(
    style: str, given: dict[str, Any], engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines(Family("llama", "Llama", style=style))
    fed, said = Fed(engine, monkeypatch), list[Answers]()
    order: tuple[dict[str, Any], ...] = (given, {}, given)

    async def body() -> None:
        model = ServedModel("small", engine, RunConfig(), Serving())
        async with model.serving():
            for each in order:
                said.append(await model.answer(Caller(), asked(each), lambda delta: None))

    play(body)
    turns = [{"role": quoted.role, "content": quoted.text} for quoted in TALK]
    for each, prompt in zip(order, fed.prompts, strict=True):
        more: Any = {"add_generation_prompt": True, "return_dict": False} | each
        assert prompt == engine.tokenizer.apply_chat_template(turns, **more)
    assert [each.usage.prompt for each in said] == list(map(len, fed.prompts))
    assert said[0].answers[0].tokens == said[2].answers[0].tokens
    assert said[2].usage.exact > 0, "the same variables share a prompt"


def test_a_thought_is_told_apart_as_the_request_s_variables_have_it(engines: Engines) -> None:
    engine = engines(Family("llama", "Llama", style="opened"))

    async def body() -> None:
        model = ServedModel("small", engine, RunConfig(), Serving())
        async with model.serving():
            for each, thinks in ((OFF, False), ({}, True)):
                answers = await model.answer(Caller(), asked(each), lambda delta: None)
                assert (answers.usage.pondered, answers.usage.completion) == (3 * thinks, 3)

    play(body)


@pytest.mark.parametrize("mode", ["enforce", "audit", "baseline"])
def test_in_a_society_an_answer_begins_inside_of_the_thought_that_the_template_opens(
    mode: Any, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines(Family("llama", "Llama", style="opened"))
    fed, said = Fed(engine, monkeypatch), list[Answers]()

    async def body() -> None:
        model = ServedModel("small", engine, RunConfig(), Serving())
        async with model.serving():
            for name in ("ann", "bob"):
                request = ChatRequest(TALK, {"temperature": 0.0}, 3)
                said.append(await model.answer(agent(name, mode=mode), request, lambda delta: None))

    play(body)
    opened = "<|im_start|>assistant\n<think>\n"
    assert all(str(engine.tokenizer.decode(prompt)).endswith(opened) for prompt in fed.prompts)
    assert [answers.usage.pondered for answers in said] == [3, 3]
    assert [answers.usage.prompt for answers in said] == list(map(len, fed.prompts))


def test_a_society_s_request_cannot_choose_them_but_where_they_change_nothing(engines: Engines) -> None:
    engine = engines(Family("llama", "Llama", style="opened"))

    async def body() -> None:
        model = ServedModel("small", engine, RunConfig(), Serving())
        async with model.serving():
            with pytest.raises(ApiError) as error:
                await model.answer(agent("ann"), asked(OFF), lambda delta: None)
            assert (error.value.status, error.value.param) == (400, "chat_template_kwargs")
            assert "--chat-template-kwargs" in error.value.message
            for each in (ON, {"unknown": 1}):
                await model.answer(agent("ann"), asked(each), lambda delta: None)

    play(body)


def test_a_chat_that_is_framed_message_by_message_cannot_choose_them_either(engines: Engines) -> None:
    engine, tools = engines(Family("llama", "Llama", style="opened")), Tools((ToolDefinition("weather"),))

    async def body() -> None:
        model = ServedModel("small", engine, RunConfig(), Serving())
        async with model.serving():
            with pytest.raises(ApiError, match="does not write this chat as a whole") as error:
                await model.answer(Caller(), asked(OFF, tools=tools), lambda delta: None)
            assert (error.value.status, error.value.param) == (400, "chat_template_kwargs")
            await model.answer(Caller(), asked(ON, tools=tools), lambda delta: None)

    play(body)


@pytest.mark.parametrize("hard", [None, "reasoning.effort"])
def test_values_that_the_template_refuses_are_refused(hard: str | None) -> None:
    tokenizer = templates.tokenizer("chatml")
    refuses = "{% if reasoning_effort == 'high' %}{{ raise_exception('no') }}{% endif %}"
    tokenizer.chat_template = refuses + str(tokenizer.chat_template)
    frames: Any = SimpleNamespace(framing=derive(tokenizer, "strict"))
    request = ChatRequest(TALK, variables=HARD, asked=frozenset() if hard else frozenset(HARD), hard=hard)
    with pytest.raises(ApiError, match="the chat template refuses this chat") as error:
        chat_of(request, frames)
    assert error.value.param == (hard or "chat_template_kwargs")


@pytest.mark.parametrize(
    ("body", "framed", "told"),
    [
        ({"chat_template_kwargs": OFF}, False, []),
        ({"chat_template_kwargs": OFF | {"unknown": 1}}, False, ["chat_template_kwargs"]),
        ({"reasoning_effort": "none"}, False, []),
        ({"reasoning_effort": "high"}, False, ["reasoning_effort"]),
        ({"reasoning_effort": "none"}, True, ["reasoning_effort"]),
        ({}, False, []),
    ],
)
def test_what_changes_nothing_is_counted(body: dict[str, Any], framed: bool, told: list[str], engines: Engines) -> None:
    engine = engines(Family("llama", "Llama", style="opened"))
    model = ServedModel("small", engine, RunConfig(), Serving())
    request = of_chat(**body)[1]
    assert model.without_effect(agent("ann") if framed else Caller(), request) == told


def test_bodies_of_both_apis_say_them() -> None:
    thinking = {"reasoning_effort": "none", "enable_thinking": True, "thinking": False}
    request = of_chat(chat_template_kwargs=ON, reasoning_effort="none")[1]
    assert (dict(request.variables), sorted(request.asked)) == (thinking, ["enable_thinking"])
    assert request.hard == "reasoning_effort"
    _, request, shape = of_responses(chat_template_kwargs=ON, reasoning={"effort": "none", "summary": "auto"})
    assert (dict(request.variables), request.hard) == (thinking, "reasoning.effort")
    assert shape.ignored == ("reasoning.summary",)
    assert shape.echo["reasoning"] == {"effort": "none", "summary": None}
    nothing: dict[str, Any] = {"chat_template_kwargs": None, "reasoning_effort": None}
    bodies: list[dict[str, Any]] = [{}, nothing, {"chat_template_kwargs": {}}]
    assert not any(of_chat(**body)[1].variables for body in bodies)


def test_what_cannot_be_given_is_refused_by_its_name() -> None:
    assert "set by the engine" in refused("chat_template_kwargs", chat_template_kwargs={"messages": []}).message
    refused("chat_template_kwargs", chat_template_kwargs=[1])
    refused("reasoning_effort", reasoning_effort="enormous")
    refused("reasoning.effort", api=responses, reasoning={"effort": "enormous"})
    refused("reasoning.tokens", api=responses, reasoning={"tokens": 1})
