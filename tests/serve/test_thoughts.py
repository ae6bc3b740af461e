"""A served model's thought is separate from its answer, and private to its agent in a society."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentcho.serve.api import chat
from agentcho.serve.request import Answer, AnswerDelta, Answers, TokenUsage
from agentcho.testing import FakeEngine

from .bodies import answered, events, of_chat, of_responses, response
from .stage import Asked, agent, assistant, conclusion, play, saved, served, user

SAID = Answer("msg_1", "Hello there", "stop", (7, 8), thought="hm so", pondered=4)
USAGE = TokenUsage(5, 6, pondered=4)


def thinker(reply: str = "<think> hm so </think> hello there") -> FakeEngine:
    return FakeEngine(lambda call, prompt: reply, thinks=True)


def heard(asked: Asked) -> tuple[str, str]:
    """What a client hears of a stream: the thought, and the answer."""
    return "".join(each.thought for each in asked.heard), "".join(each.text for each in asked.heard)


@pytest.mark.parametrize("society", [False, True])
def test_a_thought_comes_apart_from_the_answer(society: bool, tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path if society else None, thinker()) as asked:
            who = agent("ann") if society else None
            answers = await asked.ask(user("Hi"), who=who)
            [answer] = answers.answers
            assert (answer.thought, answer.text, answer.ended) == ("hm so", "hello there", "stop")
            assert (len(answer.tokens), answers.usage.completion) == (2, 2 + answers.usage.pondered)
            thought, text = heard(asked)
            assert (thought.strip(), text) == ("hm so", "hello there")
            again = await asked.ask(user("Hi"), assistant("hello there"), user("And?"), who=who)
            assert again.answers[0].thought == "hm so"

    play(body)


def test_a_thought_in_a_society_is_its_agents_alone(tmp_path: Path) -> None:
    prompts: list[str] = []

    def say(call: Any, prompt: str) -> str:
        prompts.append(prompt)
        return "<think> hm </think> hello there"

    async def body() -> None:
        async with served(tmp_path, FakeEngine(say, thinks=True)) as asked:
            await asked.ask(user("Hi"), who=agent("ann"))
            await asked.ask(user("Hi"), assistant("hello there", "ann"), user("And?"), who=agent("bob"))

    play(body)
    assert not any("hm" in prompt for prompt in prompts)
    entries = saved(tmp_path).games()[0]
    thoughts = {entry.message.id: entry.message for entry in entries if entry.message.words.thought is not None}
    assert [(id, each.text, each.audience.to_json()) for id, each in thoughts.items()] == [
        ("ann.0.thought", "hm", ["ann"]),
        ("bob.0.thought", "hm", ["bob"]),
    ]
    for record in (record for entry in entries for record in entry.made):
        assert record.cone & thoughts.keys() <= {record.message}
    assert conclusion(tmp_path) == "clean"


def test_a_thought_that_uses_all_tokens_up_leaves_an_empty_answer() -> None:
    async def body() -> None:
        async with served(engine=thinker("<think> and so it goes on")) as asked:
            [answer] = (await asked.ask(user("Hi"), max_tokens=3)).answers
            assert (answer.text, answer.ended, answer.thought) == ("", "max_tokens", "and so")

    play(body)


def test_logarithms_are_those_of_the_answer() -> None:
    async def body() -> None:
        async with served(engine=thinker()) as asked:
            [answer] = (await asked.ask(user("Hi"), logprobs=0)).answers
            assert len(answer.likely) == len(answer.tokens)
            assert b"".join(each.raw for each in answer.likely).decode() == answer.text

    play(body)


def test_a_chat_completion_has_the_thought_under_both_names() -> None:
    _, _, shape = of_chat()
    message = chat.whole(shape, Answers((SAID,), USAGE))["choices"][0]["message"]
    assert message["content"] == "Hello there"
    assert (message["reasoning_content"], message["reasoning"]) == ("hm so", "hm so")
    assert chat.whole(shape, Answers((SAID,), USAGE))["usage"]["completion_tokens_details"] == {"reasoning_tokens": 4}


def test_a_stream_has_the_thought_before_the_answer() -> None:
    _, _, shape = of_chat(stream=True)
    stream = chat.ChatStream(shape)
    sent = [*stream.delta(AnswerDelta(0, "", thought="hm ")), *stream.delta(AnswerDelta(0, "Hello"))]
    deltas = [json.loads(each.removeprefix(b"data: "))["choices"][0]["delta"] for each in sent]
    assert deltas == [{"reasoning_content": "hm ", "reasoning": "hm "}, {"content": "Hello"}]


def test_a_response_has_the_thought_as_an_item_in_front() -> None:
    _, _, shape = of_responses()
    answers = answered(shape, SAID, usage=USAGE)
    output: Any = response(shape, answers).output
    assert [item.type for item in output] == ["reasoning", "message"]
    assert [part.text for part in output[0].content] == ["hm so"]
    told = events(shape, [AnswerDelta(0, "", thought="hm so"), AnswerDelta(0, "Hello there")], answers)
    done = [(each.output_index, each.item.type) for each in told if each.type == "response.output_item.done"]
    assert done == [(0, "reasoning"), (1, "message")]
    assert told[-1].response.output == output


def test_a_streamed_thought_is_a_part_of_its_item_without_the_whitespace_around_it() -> None:
    _, _, shape = of_responses(stream=True)
    answers = answered(shape, SAID, usage=USAGE)
    pieces = [
        *(AnswerDelta(0, "", thought=each) for each in ("\n", " hm", " ", "so\n", "\n")),
        AnswerDelta(0, "Hello there"),
    ]
    told: list[Any] = events(shape, pieces, answers)
    of_thought = [each for each in told if getattr(each, "item_id", None) == told[-1].response.output[0].id]
    assert [each.type for each in of_thought] == [
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.content_part.done",
    ]
    assert (of_thought[0].part.text, of_thought[-1].part.text) == ("", "hm so")
    assert "".join(each.delta for each in of_thought[1:3]) == of_thought[3].text == "hm so"


def test_a_streamed_thought_of_whitespace_is_none() -> None:
    _, _, shape = of_responses(stream=True)
    answers = answered(shape, SAID._replace(thought=""), usage=USAGE)
    told: list[Any] = events(shape, [AnswerDelta(0, "", thought="\n\n"), AnswerDelta(0, "Hello there")], answers)
    done = [(each.output_index, each.item.type) for each in told if each.type == "response.output_item.done"]
    assert done == [(0, "message")]
    assert [each.type for each in told[-1].response.output] == ["message"]
