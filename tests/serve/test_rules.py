"""Guarantees of the server for every request, with and without a society."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from agentcho.errors import CallFailed
from agentcho.protocol.call import StepResult
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import Caller, ChatRequest, ToolDefinition, Tools
from agentcho.serve.sharing.society import RetentionLimits
from agentcho.testing import FakeEngine
from tests.serve.stage import agent, play, served, user

BOTH = pytest.mark.parametrize("who", [Caller(), agent("ann")], ids=["no society", "society"])


def endless() -> FakeEngine:
    return FakeEngine(reply=lambda call, prompt: "and " * 4000)


@BOTH
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_deterministic_server_takes_every_step_so(
    who: Caller, deterministic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, step = list[bool](), FakeEngine.step

    def heard(engine: FakeEngine, exact: bool = False) -> StepResult:
        steps.append(exact)
        return step(engine, exact)

    async def body() -> None:
        async with served(deterministic=deterministic) as at:
            await at.ask(user("hello"), who=who, max_tokens=4)

    monkeypatch.setattr(FakeEngine, "step", heard)
    play(body)
    assert set(steps) == {deterministic}


def test_a_server_bounds_what_is_encoded_beside_those_who_are_answered() -> None:
    engine = FakeEngine()

    async def body() -> None:
        async with served(engine=engine, prefill_budget=7):
            assert engine._scheduler._budget.beside == 7

    play(body)


@BOTH
def test_without_a_seed_equal_requests_get_other_words(who: Caller) -> None:
    async def body() -> None:
        async with served() as at:
            said = {(await at.ask(user("hello"), who=who)).answers[0].text for _ in range(8)}
            assert len(said) > 1
            same = {(await at.ask(user("hello"), who=who, seed=5)).answers[0].text for _ in range(3)}
            assert len(same) == 1

    play(body)


@BOTH
def test_an_answer_has_a_most_where_the_request_says_none(who: Caller) -> None:
    async def body() -> None:
        async with served(engine=endless(), keeping=RetentionLimits(most=5)) as at:
            assert (await at.ask(user("hello"), who=who)).usage.completion == 5
            assert (await at.ask(user("hello"), who=who, max_tokens=9)).usage.completion == 9

    play(body)


@BOTH
def test_what_is_said_and_its_closing_fit_into_the_context(who: Caller) -> None:
    async def body() -> None:
        engine = FakeEngine(reply=lambda call, prompt: "and " * 4000, context=128)
        async with served(engine=engine) as at:
            usage = (await at.ask(user("hello " * 40), who=who, max_tokens=1 << 20)).usage
            assert usage.prompt + usage.completion + len(engine.framing.closing("assistant")) == engine.context

    play(body)


def test_a_society_that_is_asked_something_does_not_end() -> None:
    async def body() -> None:
        async with served(engine=endless(), idle=0.0) as at:
            begun = anyio.Event()

            async def long() -> None:
                request = ChatRequest((user("tell me all"),), max_tokens=200)
                answers = await at.model.answer(agent("ann"), request, lambda delta: begun.set())
                assert answers.usage.completion == 200

            async with anyio.create_task_group() as group:
                group.start_soon(long)
                await begun.wait()
                at.model.end_idle()
                assert at.model.society_info(agent("ann")) is not None
                with pytest.raises(ApiError, match="under way") as told:
                    at.model.end_society(agent("ann"))
                assert told.value.status == 409
            at.model.end_idle()
            assert at.model.society_info(agent("ann")) is None

    play(body)


@BOTH
def test_a_schema_that_became_too_expensive_is_told_by_the_field_of_the_client(who: Caller) -> None:
    async def body() -> None:
        async with served(engine=FakeEngine(faulty=lambda call: CallFailed.constraint("lexer"))) as at:
            with pytest.raises(ApiError, match="too expensive to follow") as told:
                await at.ask(user("hello"), who=who, constrained="response_format")
            assert (told.value.status, told.value.param) == (400, "response_format")
            assert "lexer" not in told.value.message

    play(body)


@BOTH
@pytest.mark.parametrize("held", ["a call", "a schema", "a choice"])
def test_too_few_tokens_for_what_an_answer_is_held_to_end_it_by_length(who: Caller, held: str) -> None:
    ways: dict[str, Any] = {
        "a call": {"tools": Tools((ToolDefinition("look_up", "", {"type": "object"}),), "required")},
        "a schema": {"options": {"json_schema": {"type": "array", "minItems": 5, "items": {"enum": ["one two"]}}}},
        "a choice": {"options": {"choices": ("one two three four",)}},
    }

    async def body() -> None:
        async with served() as at:
            answers = await at.ask(user("hello"), who=who, max_tokens=1, **ways[held])
            [answer] = answers.answers
            assert (answer.ended, answers.usage.completion, answer.calls) == ("max_tokens", 1, ())
            assert (answer.text == "") == (held == "a call")

    play(body)
