"""Separating a thought that a server leaves in the answer's text, however the text is split into pieces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcho import Sampling
from agentcho.config import ModelConfig
from agentcho.integrations.endpoints.request import enforced
from agentcho.integrations.endpoints.servers import Abilities
from agentcho.integrations.endpoints.thoughts import Habit, Parted
from agentcho.protocol.text_calls import PromptMessage, TextCall, TextReply
from agentcho.testing.endpoint import cut

from .faulty import Answer, Request, event, faulty, head, piece, says, sends, told

THOUGHT, SAID = "So it is.", "Yes, <b>it</b> is.</think>"
PROMPT = (PromptMessage("user", "bob", "Is it?"),)


def heard(
    pieces: list[str],
    habit: Habit | None = None,
    ended: bool = True,
    goes_on: bool = False,
    constrained: bool = False,
) -> tuple[str, str]:
    """The thought and the answer in these pieces."""
    parted = Parted(habit or Habit(), goes_on, constrained)
    said = "".join(parted.add(piece) for piece in pieces) + parted.end(cut=not ended)
    return parted.thought.strip(), said


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.sampled_from(["", " ", "\n\n"]), st.booleans())
def test_a_leading_block_is_the_thought_and_all_behind_it_the_answer(size: int, blanks: str, opened: bool) -> None:
    text = f"{blanks}{'<think>' if opened else ''}\n{THOUGHT}\n</think>\n\n{SAID}"
    assert heard([text[at : at + size] for at in range(0, len(text), size)]) == (THOUGHT, SAID)


@pytest.mark.parametrize("text", ["Yes.", " <b>Yes</b>", "<thin", "", "It says <think> so </thin", "\n<thinking>"])
def test_an_answer_without_a_thought_is_as_it_came(text: str) -> None:
    assert heard(list(text)) == ("", text)


def test_what_is_no_leading_block_stays_once_it_is_known_that_answers_have_none() -> None:
    habit = Habit()
    assert heard(["Yes."], habit) == ("", "Yes.")
    parted = Parted(habit)
    assert (parted.add("The mark "), parted.add("</think> ends")) == ("The mark ", "</think> ends")
    assert heard(["<think>a", "</think>b"], habit) == ("a", "b")


def test_a_thought_that_is_cut_leaves_nothing_to_say() -> None:
    assert heard(["<think>and so", " it goes"], ended=False) == ("and so it goes", "")
    habit = Habit()
    heard(["so</think>Yes."], habit)
    assert heard(["and so it goes"], habit, ended=False) == ("and so it goes", "")
    assert heard(["on a word"], habit, goes_on=True) == ("", "on a word")


def test_a_cut_text_tells_nothing_of_a_model() -> None:
    habit = Habit()
    assert heard(["It may be a thought"], habit, ended=False) == ("", "It may be a thought")
    assert habit.inside is None
    assert heard(["so</think>Yes."], habit) == ("so", "Yes.")


def test_a_constrained_text_without_a_thought_is_the_answer_and_tells_nothing_of_free_ones() -> None:
    habit = Habit()
    assert heard(["yes"], habit, constrained=True) == ("", "yes")
    assert habit.inside is None
    assert heard(["so</think>Yes."], habit) == ("so", "Yes.")
    assert heard(["yes"], habit, constrained=True) == ("", "yes")
    assert heard(["hm</think>yes"], habit, constrained=True) == ("hm", "yes")


@pytest.mark.parametrize("pieces", [cut(f"<think>{THOUGHT}</think>Yes.", 5), cut(f"{THOUGHT}\n</think>\n\nYes.", 7)])
def test_nobody_who_hears_an_answer_hears_its_thought(pieces: list[str]) -> None:
    shown = list[str]()

    async def body() -> list[TextReply]:
        call = TextCall(PROMPT, on_text=shown.append)
        how: dict[str, Any] = {"fresh": True, "server": "vllm", "chat_template_kwargs": {"a": 1}}
        async with faulty(says(*pieces)) as server, server.asked(**how) as port:
            found = [await port.ask(call), await port.ask(call)]
            assert [each.body["chat_template_kwargs"] for each in server.requests] == [{"a": 1}] * 2
            return found

    replies = anyio.run(body)
    assert [(reply.thought, reply.text) for reply in replies] == [(THOUGHT, "Yes.")] * 2
    assert "".join(shown) == "Yes.Yes."


def answered(calls: Sequence[TextCall], *answers: Answer) -> tuple[list[TextReply], list[Request]]:
    """The replies of a model of which nothing is known yet to these calls, one after another, and their requests."""

    async def body() -> tuple[list[TextReply], list[Request]]:
        async with faulty(*answers) as server, server.asked(True, server="vllm") as port:
            return [await port.ask(call) for call in calls], server.requests

    return anyio.run(body)


def stopping(*pieces: str) -> Answer:
    """Says these pieces up to the first that contains a stop string of the request."""

    async def answer(stream: SocketStream, request: Request) -> None:
        ends: list[str] = request.body.get("stop", [])
        await says(*takewhile(lambda text: not any(end in text for end in ends), pieces))(stream, request)

    return answer


@pytest.mark.parametrize("options", [{"choices": ("1", "2")}, {"json_schema": {"type": "integer"}}])
def test_nobody_hears_a_thought_that_follows_a_choice_or_json(options: dict[str, Any]) -> None:
    shown = list[str]()
    held, free = TextCall(PROMPT, sampling=Sampling(**options)), TextCall(PROMPT, on_text=shown.append)
    thinks = says("secret ", "reasoning</think>", "Hello")
    found, requests = answered((held, free, held), says("1"), thinks, says("1"))
    assert [(each.thought, each.text) for each in found] == [("", "1"), ("secret reasoning", "Hello"), ("", "1")]
    assert "".join(shown) == "Hello"
    assert len(requests) == 3


def test_a_stop_string_ends_the_answer_and_not_the_thought_before_it() -> None:
    shown = list[str]()
    call = TextCall(PROMPT, sampling=Sampling(stop=("\n",)), on_text=shown.append)
    found, _ = answered((call, call), stopping("secret", "\n", "plan</think>", "Hello", "\n", "there"))
    assert [reply[:2] for reply in found] == [("Hello", "stop_string")] * 2
    assert [reply.thought for reply in found] == ["secret\nplan"] * 2
    assert "".join(shown) == "HelloHello"


def test_stop_strings_are_sent_once_it_is_known_that_answers_have_no_thought() -> None:
    call = TextCall(PROMPT, sampling=Sampling(stop=("\n",)))
    found, requests = answered((call, call), stopping("Hello", "\n", "there"))
    assert [reply.text for reply in found] == ["Hello"] * 2
    assert [each.body.get("stop") for each in requests] == [None, ["\n"]]


def test_stop_strings_are_kept_back_once_if_the_answer_shows_nothing() -> None:
    call, cut = TextCall(PROMPT, sampling=Sampling(stop=("\n",))), (head(), piece("It goes on"), piece(finish="length"))
    found, requests = answered((call, call), sends(*cut, told()))
    assert [reply.text for reply in found] == ["It goes on"] * 2
    assert [each.body.get("stop") for each in requests] == [None, ["\n"]]


def test_stop_strings_are_sent_to_a_server_that_sends_thoughts_apart() -> None:
    call = TextCall(PROMPT, sampling=Sampling(stop=("\n",)))
    apart = sends(
        head(), event({"choices": [{"delta": {"reasoning_content": "hm"}}]}), piece("Yes"), piece(finish="stop"), told()
    )
    _, requests = answered((call, call), apart)
    assert [each.body.get("stop") for each in requests] == [None, ["\n"]]


def test_a_choice_that_the_server_does_not_enforce_may_follow_a_thought() -> None:
    """It is not taken for the answer if a limit ends it."""
    habit = Habit(inside=True)
    assert heard(["I wonder"], habit) == ("I wonder", "")
    asked = Sampling(choices=("yes", "no"))
    for can in ((), ("choices",)):
        config = ModelConfig(model="openai:m", base_url="http://127.0.0.1:1/v1", server="vllm", can=can)
        assert enforced(asked, Abilities.of(config)) is (can != ())


@pytest.mark.parametrize(
    ("options", "stop"), [({"stop": ("\n",), "min_tokens": 2}, "\n"), ({"stop_token_ids": (7,)}, 7)]
)
def test_an_answer_that_the_server_stopped_tells_nothing_of_a_model(options: dict[str, Any], stop: str | int) -> None:
    shown = list[str]()
    first = sends(head(), piece("It may be a thought"), piece(finish="stop", stop_reason=stop), told())
    calls = TextCall(PROMPT, sampling=Sampling(**options)), TextCall(PROMPT, on_text=shown.append)
    found, requests = answered(calls, first, says("secret ", "reasoning</think>", "Hello"))
    assert [reply.text for reply in found] == ["It may be a thought", "Hello"]
    assert "".join(shown) == "Hello"
    assert requests[0].body.get("stop") == ([stop] if isinstance(stop, str) else None)


def test_a_server_that_parts_thoughts_itself_is_taken_at_its_word() -> None:
    async def body() -> TextReply:
        apart = event({"choices": [{"index": 0, "delta": {"reasoning": "hm"}}]})
        answer = sends(head(), apart, piece("The mark </think> ends it."), piece(finish="stop"), told())
        async with faulty(answer) as server, server.asked(True) as port:
            return await port.ask(TextCall(PROMPT))

    reply = anyio.run(body)
    assert (reply.thought, reply.text) == ("hm", "The mark </think> ends it.")
