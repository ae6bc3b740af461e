"""Invalid answers are requested again, at most twice, and are not shown before that."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from agentcho import Sampling
from agentcho.errors import AgentchoError, AnswerInvalid, ContextOverflow, RequestError
from agentcho.integrations.endpoints.faults import Backoff, asked_wait
from agentcho.protocol.text_calls import PromptMessage, TextCall, TextReply

from .faulty import Answer, Request, faulty, head, piece, refuses, says, sends, told

PROMPT = (PromptMessage("user", "bob", "The word is swordfish."),)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def tried(call: TextCall, *answers: Answer, **config: Any) -> tuple[TextReply | AgentchoError, list[Request]]:
    """The reply to a call, or its error, and the requests it took."""

    async def work() -> tuple[TextReply | AgentchoError, list[Request]]:
        async with faulty(*answers) as server, server.asked(**config) as port:
            try:
                with anyio.fail_after(20):
                    return await port.ask(call), server.requests
            except AgentchoError as error:
                return error, server.requests

    return anyio.run(work)


def asked(heard: list[str] | None = None, header: str = "", **options: Any) -> TextCall:
    hear = None if heard is None else heard.append
    return TextCall(PROMPT, header, Sampling(**options), on_text=hear)


def test_a_choice_that_is_none_is_asked_for_again_with_what_was_wrong() -> None:
    heard = list[str]()
    call = asked(heard, choices=("yes", "no"))
    reply, requests = tried(call, says("may", "be"), says("Yes", "."), server="transformers")
    assert isinstance(reply, TextReply)
    assert (reply.text, heard, reply.spent[:4]) == ("yes", ["yes"], (14, None, 6, 2))
    *prompt, said, again = requests[1].body["messages"]
    assert prompt == requests[0].body["messages"][:1]
    assert said == {"role": "assistant", "content": "maybe"}
    assert "none of the texts" in again["content"]
    assert again["content"].count("yes") == 1
    assert requests[0].body["seed"] != requests[1].body["seed"]


def test_a_server_that_ignores_its_own_field_is_found_out() -> None:
    reply, requests = tried(asked(choices=("yes", "no")), says("maybe"), says("no"), server="vllm")
    assert isinstance(reply, TextReply)
    assert reply.text == "no"
    assert all(each.body["structured_outputs"] == {"choice": ["yes", "no"]} for each in requests)
    assert "yes\nno" in requests[1].body["messages"][-1]["content"]


@pytest.mark.parametrize("bad", ['{"a": ', '{"a": "1"}', "I would rather not"])
def test_json_that_does_not_match_is_asked_for_again(bad: str) -> None:
    heard = list[str]()
    reply, requests = tried(asked(heard, json_schema=SCHEMA), says(bad), says(bad), says('{"a": 1}'))
    assert isinstance(reply, TextReply)
    assert (reply.text, heard, len(requests)) == ('{"a": 1}', ['{"a": 1}'], 3)
    assert "JSON" in requests[2].body["messages"][-1]["content"]


def test_half_a_document_is_told_to_be_too_long() -> None:
    call = asked(json_schema=SCHEMA)
    _, requests = tried(call, says('{"a"', finish="length"), says('{"a": 1}'))
    assert "too long" in requests[1].body["messages"][-1]["content"]


@pytest.mark.parametrize("options", [{"choices": ("yes", "no")}, {"json_schema": SCHEMA}])
def test_the_third_wrong_answer_is_an_error_that_quotes_nobody(options: dict[str, Any]) -> None:
    heard = list[str]()
    error, requests = tried(asked(heard, **options), says("swordfish"), server="sglang")
    assert isinstance(error, AnswerInvalid)
    assert (len(requests), heard, error.transient) == (3, [], False)
    assert "swordfish" not in str(error)
    assert "model far" in str(error)


def test_attempts_and_repairs_share_what_may_be_sent_again() -> None:
    answers = (refuses(500), says("maybe"), refuses(500), says("no"))
    error, requests = tried(asked(choices=("yes", "no")), *answers, retries=1)
    assert isinstance(error, AgentchoError)
    assert (len(requests), error.transient) == (3, True)


def test_a_choice_in_a_schema_comes_out_of_it() -> None:
    reply, requests = tried(asked(choices=("yes", "no")), says('{"answer":', '"no"}'), server="openai")
    assert isinstance(reply, TextReply)
    assert (reply.text, len(requests)) == ("no", 1)


def test_a_stop_string_cuts_nothing_that_stands_around_a_choice() -> None:
    call = asked(choices=("yes", "no"), stop=("answer", "\n"))
    reply, requests = tried(call, says('{\n"answer":"no"}'))
    assert isinstance(reply, TextReply)
    assert (reply.text, len(requests), "stop" in requests[0].body) == ("no", 1, False)


def test_an_answer_of_which_nothing_is_reported_has_no_report_of_another() -> None:
    reply, _ = tried(asked(choices=("yes", "no")), says("maybe"), says("no", usage=None))
    assert isinstance(reply, TextReply)
    assert reply.spent == (None, None, None, 2, None)


def test_a_header_that_is_asked_for_in_words_is_shown_by_nobody() -> None:
    heard = list[str]()
    reply, _ = tried(asked(heard, header="To Ann: "), says("To", " Ann:", " hi", " you"), server="transformers")
    assert isinstance(reply, TextReply)
    assert (reply.text, heard) == ("hi you", ["hi", " you"])


def test_a_stop_string_that_a_server_goes_past_ends_the_answer() -> None:
    heard = list[str]()
    more = sends(head(), *(piece(each) for each in ("one E", "ND two", " three")), piece(" four"))
    reply, _ = tried(asked(heard, stop=("END",)), more)
    assert isinstance(reply, TextReply)
    assert (reply.text, reply.stopped, heard) == ("one ", "stop_string", ["one "])


def test_a_server_that_keeps_its_stop_string_still_tells_what_it_took() -> None:
    reply, _ = tried(asked(stop=("END",)), says("one E", "ND"))
    assert isinstance(reply, TextReply)
    assert (reply.text, reply.stopped, reply.spent.completion) == ("one ", "stop_string", 3)


def test_with_min_tokens_the_server_alone_knows_which_stop_string_counts() -> None:
    reply, _ = tried(asked(stop=("END",), min_tokens=2), says("END one"), server="vllm")
    assert isinstance(reply, TextReply)
    assert (reply.text, reply.stopped) == ("END one", "stop")


@pytest.mark.parametrize(
    ("end", "stopped"),
    [
        ({"finish_reason": "length"}, "max_tokens"),
        ({"finish_reason": "stop"}, "stop"),
        ({"finish_reason": "eos_token"}, "stop"),
        ({"finish_reason": "model_length"}, "max_tokens"),
        ({"finish_reason": "stop", "stop_reason": "END"}, "stop_string"),
        ({"finish_reason": "stop", "stop_reason": 151645}, "stop"),
        ({"finish_reason": "stop", "matched_stop": "END"}, "stop_string"),
        ({"finish_reason": "stop", "matched_stop": "</s>"}, "stop"),
        ({"finish_reason": "stop", "stop_reason": 7}, "stop_token"),
        ({"finish_reason": "stop", "matched_stop": 7}, "stop_token"),
    ],
)
def test_what_ended_an_answer_is_told(end: dict[str, Any], stopped: str) -> None:
    reply, _ = tried(
        asked(stop=("END",), stop_token_ids=(7,)), sends(head(), piece("one"), piece(**end), told()), server="vllm"
    )
    assert isinstance(reply, TextReply)
    assert reply.stopped == stopped


def test_an_answer_past_the_context_is_an_overflow() -> None:
    error, _ = tried(asked(), says("hi"), context=9)
    assert isinstance(error, ContextOverflow)
    assert (error.needed, error.limit) == (10, 9)


def test_a_schema_that_is_none_is_refused_before_anything_is_sent() -> None:
    error, requests = tried(asked(json_schema={"type": 5}), says("hi"))
    assert isinstance(error, RequestError)
    assert not requests


def in_company(answer: Answer) -> Answer:
    """The answer, once a second request has arrived."""
    seen, second = list[Request](), anyio.Event()

    async def waiting(stream: SocketStream, request: Request) -> None:
        seen.append(request)
        if len(seen) == 2:
            second.set()
        await second.wait()
        await answer(stream, request)

    return waiting


def test_all_games_share_one_bound() -> None:
    async def work() -> int:
        async with faulty(in_company(says("hi"))) as server, server.asked(concurrency=2) as port:
            async with anyio.create_task_group() as group:
                for _ in range(9):
                    group.start_soon(port.ask, asked())
            return server.most

    assert anyio.run(work) == 2


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("2", 2.0),
        ("0.5", 0.5),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60.0),
        ("Thu, 01 Jan 2026 00:01:00 -0000", 60.0),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0.0),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("nan", None),
        ("1e9", None),
    ],
)
def test_a_wait_is_read_as_a_number_or_a_date(said: str, seconds: float | None) -> None:
    assert asked_wait({"retry-after": said}, NOW) == seconds


def test_a_wait_grows_is_drawn_from_all_of_it_and_has_a_bound() -> None:
    backoff, random = Backoff(1.0, 8.0), Random(0)
    for attempt, bound in enumerate((1, 2, 4, 8, 8, 8)):
        drawn = [backoff.seconds(attempt, None, random) for _ in range(200)]
        assert 0 <= min(drawn) < bound / 10
        assert bound * 0.9 < max(drawn) <= bound
    assert 30 <= backoff.seconds(5, 30.0, random) <= 31
    assert backoff.seconds(10**6, None, random) <= 8
