"""Errors and releases in the listeners of a request affect only that request; the loop continues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from agentcho import Choreographer, Prefill
from agentcho.choreography.choreographer import _raised
from agentcho.choreography.requests import Request, UnfinishedDecode
from agentcho.errors import AgentchoError, CallbackFailed
from agentcho.protocol.call import Decode, Sampling
from agentcho.testing import FakeEngine

from .stage import Play, nothing_left, speech, talker

ENDS: list[type[BaseException]] = [SystemExit, GeneratorExit, asyncio.CancelledError, ValueError]
WHEN = ("on_token", "on_piece", "flush", "on_done")


def raising(error: type[BaseException]) -> Callable[..., None]:
    def hear(*_: object) -> None:
        raise error

    return hear


@pytest.mark.parametrize("error", ENDS)
@pytest.mark.parametrize("when", WHEN)
def test_what_would_end_a_task_or_the_process_ends_the_request_alone(
    play: Play, error: type[BaseException], when: str
) -> None:
    async def work() -> None:
        hears: dict[str, Any] = {when: raising(error)}
        async with Choreographer(engine) as c, anyio.create_task_group() as group:
            group.start_soon(good, c)
            with pytest.raises(CallbackFailed, match=f"{when} of this call raised {error.__name__}"):
                await c.run(speech(3, 1)._replace(**hears))

    async def good(c: Choreographer) -> None:
        made = (await c.run(speech(6, 0))).made
        said.append(made[0].words.text)
        c.release([made[0].id])

    engine, said = talker(6), list[str]()
    play(work)
    assert said == ["word word word word word word"]
    assert nothing_left(engine)


def test_all_who_share_a_flush_that_fails_fail_with_it_and_nobody_else(play: Play) -> None:
    """What could not be recorded is not delivered to any of them."""
    engine, flush, heard = talker(6), raising(OSError), list[str]()

    async def shares(c: Choreographer) -> None:
        with pytest.raises(CallbackFailed, match="flush of this call raised OSError"):
            await c.run(speech(3)._replace(flush=flush, on_token=heard.append))

    async def other(c: Choreographer) -> None:
        c.release([made.id for made in (await c.run(speech(6))).made])

    async def work() -> None:
        async with Choreographer(engine) as c:
            await c.tasks.together(shares(c), other(c), shares(c))

    play(work)
    assert not heard
    assert nothing_left(engine)


@pytest.mark.parametrize("error", ENDS)
def test_what_is_told_of_a_message_that_failed_ends_nothing_either(play: Play, error: type[BaseException]) -> None:
    def dropped(heard: UnfinishedDecode) -> None:
        told.append(heard.own.words.text)
        raise error

    async def work() -> None:
        async with Choreographer(engine) as c:
            request = speech(5, 1)._replace(on_piece=lambda piece: None, on_dropped=dropped)
            with pytest.raises(AgentchoError):
                await c.run(request._replace(on_token=lambda text: setattr(engine, "broken", ValueError("gone"))))
            c.release([call.id for call in (await c.run(speech(2))).made])

    engine, told = talker(), list[str]()
    play(work)
    assert told == ["word"]
    assert nothing_left(engine)


def test_what_a_step_made_is_known_of_a_message_that_ends_in_it(play: Play) -> None:
    """Its first token attended to it; without its record nobody could tell what that token carried."""

    async def work() -> None:
        async with Choreographer(engine) as c:
            told = Prefill("what it answers")
            calls = (told, Decode("", (told,), sampling=Sampling(max_tokens=5)))
            request = Request(calls, on_piece=lambda piece: None, on_dropped=left.append)
            with pytest.raises(CallbackFailed):
                await c.run(request._replace(on_token=raising(OSError)))

    engine, left = talker(), list[UnfinishedDecode]()
    play(work)
    [unfinished] = left
    attended = {entry.id for entry in unfinished.own.receipt.context}
    assert attended == {call.id for call in unfinished.made if call is not None}
    assert attended
    assert nothing_left(engine)


@pytest.mark.parametrize("then", ["fail", "cancel", "go on"])
def test_what_is_given_up_while_its_request_is_under_way_is_given_up_once(play: Play, then: str) -> None:
    def hear(text: str) -> None:
        if text == "word":
            open_[0].release([1])  # the id of the prefill that the decode reads
            if then == "fail":
                raise ZeroDivisionError
            if then == "cancel":
                scopes[0].cancel()

    async def work() -> None:
        async with Choreographer(engine) as c:
            open_.append(c)
            first = Prefill("told")
            request = Request((first, Decode("", [first], sampling=Sampling(max_tokens=3))), (), hear)
            with anyio.CancelScope() as scope:
                scopes.append(scope)
                try:
                    c.release([(await c.run(request)).made[1].id])
                except CallbackFailed:
                    assert then == "fail"
            c.release([call.id for call in (await c.run(speech(2))).made])

    engine, open_, scopes = talker(), list[Choreographer](), list[anyio.CancelScope]()
    play(work)
    assert nothing_left(engine)


def test_a_list_that_ends_more_than_itself_ends_its_call(play: Play) -> None:
    def ids(error: type[BaseException]) -> Any:
        yield 5
        raise error

    class Ending:
        """A guard that would end the process."""

        def __init__(self, error: type[BaseException]) -> None:
            self._error = error

        def admit(self, *_: object) -> None:
            """Fail."""
            raise self._error

    async def work() -> None:
        async with Choreographer(engine) as c:
            for error in ENDS:
                for call in (Prefill("", tokens=ids(error)), Prefill("x", guard=Ending(error))):
                    with pytest.raises(AgentchoError):
                        await c.run(Request((call,)))
            c.release([call.id for call in (await c.run(speech(2))).made])

    engine = FakeEngine()
    play(work)
    assert nothing_left(engine)


def test_ctrl_c_is_kept_from_nobody() -> None:
    with pytest.raises(KeyboardInterrupt):
        _raised(raising(KeyboardInterrupt))
