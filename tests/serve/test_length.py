"""Texts that are too long are refused before they are tokenized on the event loop."""

from __future__ import annotations

from threading import Event

import anyio
import anyio.to_thread
import pytest

from agentcho.errors import ContextOverflow
from agentcho.serve.request import ChatRequest, QuotedMessage, ToolCall
from agentcho.serve.web.length import check_length
from agentcho.serve.worker_thread import beside
from agentcho.testing import FakeEngine


@pytest.mark.parametrize("where", ["text", "arguments", "name"])
def test_a_text_of_many_letters_is_too_long_wherever_it_stands(where: str) -> None:
    long = "word " * 50_000
    calls = {"arguments": ToolCall("write", f'{{"it": "{long}"}}'), "name": ToolCall(long, "{}")}
    made = (calls[where],) if where in calls else ()
    quoted = QuotedMessage("assistant", long if where == "text" else "", calls=made)
    with pytest.raises(ContextOverflow):
        anyio.run(check_length, ChatRequest((quoted,)), FakeEngine(context=64))


def test_many_short_texts_make_no_room_for_a_long_one() -> None:
    short = QuotedMessage("assistant", "", calls=(ToolCall("f", "a"),) * 5_000)
    with pytest.raises(ContextOverflow):
        anyio.run(check_length, ChatRequest((short, QuotedMessage("user", "word " * 50_000))), FakeEngine(context=64))


@pytest.mark.parametrize("calls", [0, 2048])
def test_a_request_of_many_messages_or_calls_is_long_however_short_they_are(calls: int) -> None:
    quoted = QuotedMessage("assistant", "", calls=(ToolCall("f", "{}"),) * calls)
    assert ChatRequest((quoted,) * (1 if calls else 4096)).is_long
    assert not ChatRequest((quoted._replace(calls=quoted.calls[:8]),) * 8).is_long


def test_who_goes_away_makes_no_room_for_more_work_than_there_is_at_a_time() -> None:
    """Otherwise a client that sends requests and disconnects could occupy any number of threads."""
    begun, go_on, ended = Event(), Event(), list[int]()

    def work() -> None:
        begun.set()
        go_on.wait(5)

    async def ask(number: int, scope: anyio.CancelScope) -> None:
        with scope:
            await beside(work)
        ended.append(number)

    async def body() -> None:
        scopes = [anyio.CancelScope(), anyio.CancelScope()]
        async with anyio.create_task_group() as group:
            for number, scope in enumerate(scopes):
                group.start_soon(ask, number, scope)
            await anyio.to_thread.run_sync(begun.wait)
            for scope in scopes:
                scope.cancel()
            await anyio.wait_all_tasks_blocked()
            assert ended == [1], "who waits in line goes at once, and whose work is done goes with it"
            go_on.set()

    anyio.run(body)
    assert ended == [1, 0]
