"""Request pacing: in order of arrival, with limits on concurrency and on rates per minute."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from agentcho.integrations.endpoints.pacing import MINUTE, RequestPacer
from tests.choreography.stage import Clock


@pytest.fixture(params=["asyncio", "trio"])
def clock(request: pytest.FixtureRequest) -> Clock:
    """Each of the two event loops, with a simulated clock."""
    return Clock(request.param)


class Line:
    """Requests waiting for a server. `begun` are the names of those sent, in order."""

    def __init__(self, pace: RequestPacer, group: anyio.abc.TaskGroup) -> None:
        self._pace, self._group, self._ends = pace, group, dict[str, anyio.Event]()
        self.begun = list[str]()

    async def ask(self, name: str, tokens: float = 1, used: float | None = None) -> anyio.CancelScope:
        """Queues a request; returns a scope that can cancel it."""
        scope, self._ends[name] = anyio.CancelScope(), anyio.Event()
        self._group.start_soon(self._one, name, tokens, used, scope)
        await settle()
        return scope

    async def end(self, name: str) -> None:
        """Ends the answer to a request."""
        self._ends[name].set()
        await settle()

    async def _one(self, name: str, tokens: float, used: float | None, scope: anyio.CancelScope) -> None:
        with scope:
            async with self._pace.turn(tokens) as begun:
                self.begun.append(name)
                await self._ends[name].wait()
                begun.amount = tokens if used is None else used


async def settle() -> None:
    """Lets all tasks run until they wait."""
    for _ in range(20):
        await checkpoint()


def lined(clock: Clock, pace: tuple[Any, Any, Any], work: Any) -> None:
    """Runs a test with a queue."""

    async def run() -> None:
        async with anyio.create_task_group() as group:
            await work(Line(RequestPacer(*pace), group))
            group.cancel_scope.cancel()

    clock.run(run)


def test_so_many_at_a_time_first_come_first_served(clock: Clock) -> None:
    async def work(line: Line) -> None:
        for name in "abcd":
            await line.ask(name)
        assert line.begun == ["a", "b"]
        await line.end("b")
        assert line.begun == ["a", "b", "c"]
        await line.end("a")
        assert line.begun == ["a", "b", "c", "d"]

    lined(clock, (2, None, None), work)


def test_who_gives_up_frees_a_place_and_leaves_the_line(clock: Clock) -> None:
    async def work(line: Line) -> None:
        first, second = await line.ask("a"), await line.ask("b")
        await line.ask("c")
        second.cancel()
        first.cancel()
        await settle()
        assert line.begun == ["a", "c"]

    lined(clock, (1, None, None), work)


def test_no_minute_has_more_requests_than_it_may(clock: Clock) -> None:
    async def work(line: Line) -> None:
        await line.ask("a")
        clock.jump(20)
        for name in "bcd":
            await line.ask(name)
        assert line.begun == ["a", "b"]
        clock.jump(39.9)
        await settle()
        assert line.begun == ["a", "b"]
        clock.jump(0.2)
        await settle()
        assert line.begun == ["a", "b", "c"]
        clock.jump(20)
        await settle()
        assert line.begun == ["a", "b", "c", "d"]

    lined(clock, (9, 2, None), work)


def test_half_a_request_a_minute_is_one_in_two(clock: Clock) -> None:
    async def work(line: Line) -> None:
        await line.ask("a")
        await line.ask("b")
        clock.jump(2 * MINUTE - 1)
        await settle()
        assert line.begun == ["a"]
        clock.jump(1.1)
        await settle()
        assert line.begun == ["a", "b"]

    lined(clock, (9, 0.5, None), work)


def test_tokens_are_counted_before_and_corrected_after(clock: Clock) -> None:
    async def work(line: Line) -> None:
        await line.ask("a", 80, used=10)
        await line.ask("b", 80)
        assert line.begun == ["a"]
        await line.end("a")
        clock.jump(1)
        await line.ask("c", 5)  # waits behind b, although there is room
        assert line.begun == ["a"]
        clock.jump(MINUTE)
        await settle()
        assert line.begun == ["a", "b", "c"]

    lined(clock, (9, None, 85), work)


def test_an_answer_that_took_little_leaves_room_for_the_next(clock: Clock) -> None:
    async def work(line: Line) -> None:
        await line.ask("a", 80, used=10)
        await line.end("a")
        await line.ask("b", 80)
        assert line.begun == ["a", "b"]

    lined(clock, (9, None, 90), work)


def test_what_is_more_than_a_minute_has_waits_for_an_empty_one(clock: Clock) -> None:
    async def work(line: Line) -> None:
        await line.ask("a", 50)
        await line.ask("b", 500)
        assert line.begun == ["a"]
        clock.jump(MINUTE)
        await settle()
        assert line.begun == ["a", "b"]

    lined(clock, (9, None, 100), work)


def test_nobody_asks_a_server_that_wants_to_be_left_alone(clock: Clock) -> None:
    async def run() -> None:
        async with anyio.create_task_group() as group:
            pace = RequestPacer(9, None, None)
            line = Line(pace, group)
            pace.close_for(30)
            pace.close_for(10)
            await line.ask("a")
            clock.jump(29)
            await settle()
            assert line.begun == []
            clock.jump(1.1)
            await settle()
            assert line.begun == ["a"]
            group.cancel_scope.cancel()

    clock.run(run)
