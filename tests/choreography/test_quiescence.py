"""Counts the tasks that are awake: when a step may start, and that nothing can hold it up."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agentcho.choreography.quiescence import TaskTracker, TrackedTask
from agentcho.choreography.requests import Handle, Request
from agentcho.protocol.call import Prefill

from .stage import Play


async def rounds(count: int) -> None:
    """Let the event loop go round `count` times."""
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


def test_only_tasks_of_ours_have_a_turn(play: Play) -> None:
    turns = TaskTracker()
    found: list[TrackedTask | None] = []

    async def look() -> None:
        found.append(turns.current())

    async def work() -> None:
        await look()

        async def mine() -> None:
            await look()
            await turns.run(look())
            async with anyio.create_task_group() as group:
                group.start_soon(look)

        await turns.run(mine())
        await turns.together(look(), look())
        await look()

    play(work)
    assert [turn is None for turn in found] == [True, False, False, True, False, False, True]
    assert found[1] is found[2]
    assert found[4] is not found[5]


def test_results_come_in_order_and_the_first_error_as_it_is(play: Play) -> None:
    turns = TaskTracker()

    async def late(value: int) -> int:
        await rounds(5 - value)
        if value == 4:
            raise LookupError(value)
        return value

    async def work() -> list[int]:
        with pytest.raises(LookupError):
            await turns.together(anyio.sleep_forever(), late(4), anyio.sleep_forever())
        return await turns.together(late(1), late(2), late(3))

    assert play(work) == [1, 2, 3]


def test_nobody_to_wait_for_is_settled_at_once(play: Play) -> None:
    async def work() -> None:
        await TaskTracker().settle(lambda: 0)

    play(work)


def settles(
    play: Play, act: Callable[[TaskTracker], Coroutine[Any, Any, Any]], until: Callable[[], Any], most: int = 1000
) -> Any:
    """Returns `until()` at the moment when the tasks that run `act` have settled."""
    turns = TaskTracker(most)

    async def work() -> Any:
        async with anyio.create_task_group() as group:
            group.start_soon(turns.together, act(turns))
            await turns.settle(lambda: 0)
            seen = until()
            group.cancel_scope.cancel()
        return seen

    return play(work)


def test_a_task_that_goes_on_is_waited_for_until_it_waits_for_something_else(play: Play) -> None:
    done: list[int] = []

    async def act(turns: TaskTracker) -> None:
        for number in range(20):
            await anyio.lowlevel.checkpoint()
            done.append(number)
        await anyio.sleep_forever()

    assert settles(play, act, lambda: len(done)) == 20


def test_who_is_woken_counts_from_then_and_not_from_when_the_loop_gets_to_it(play: Play) -> None:
    turns, woken = TaskTracker(patience=5), list[str]()

    async def sleeper(event: anyio.Event, mine: list[TrackedTask | None]) -> None:
        mine.append(turns.current())
        await event.wait()
        woken.append("awake")
        await anyio.sleep_forever()

    async def work() -> None:
        event, mine = anyio.Event(), list[TrackedTask | None]()
        async with anyio.create_task_group() as group:
            group.start_soon(turns.together, sleeper(event, mine))
            await turns.settle(lambda: 0)
            assert mine[0] is not None
            mine[0].wake()
            mine[0].wake()
            late = anyio.Event()
            group.start_soon(_later, late, event)
            await turns.settle(lambda: 0)
            assert woken == ["awake"]
            group.cancel_scope.cancel()

    async def _later(late: anyio.Event, event: anyio.Event) -> None:
        await rounds(30)
        event.set()

    play(work)


@pytest.mark.parametrize("abandoned", [False, True])
def test_who_is_served_counts_as_awake_from_then_unless_it_went_its_way(play: Play, abandoned: bool) -> None:
    async def work() -> bool:
        turn = TrackedTask(TaskTracker())
        ticket = Handle(Request((Prefill("x"),)), turn)
        ticket.abandoned = abandoned
        ticket.finish(None, LookupError())
        return turn.awake

    assert play(work) != abandoned


def test_the_last_child_wakes_its_parent_before_it_rests(play: Play) -> None:
    """Otherwise no task would count as awake between the end of the last child and its parent's next move."""
    turns, rests = TaskTracker(), list[int]()
    count = turns.count

    def watch(change: int) -> None:
        count(change)
        rests.append(turns._awake)

    async def child() -> None:
        await rounds(3)

    async def parent() -> None:
        await turns.together(child(), child())

    turns.count = watch  # type: ignore[method-assign]

    async def work() -> None:
        await turns.run(parent())

    play(work)
    last = max(place for place, awake in enumerate(rests) if awake == 2)
    assert 0 not in rests[last:-1]
    assert rests[-1] == 0


def test_who_polls_for_what_a_step_brings_does_not_stop_the_steps(play: Play) -> None:
    async def act(turns: TaskTracker) -> None:
        while True:
            await anyio.lowlevel.checkpoint()

    assert settles(play, act, lambda: "stepped", most=50) == "stepped"


def test_what_untracked_tasks_submit_is_activity(play: Play) -> None:
    turns, submitted = TaskTracker(), list[int]()

    async def untracked() -> None:
        for number in range(9):
            submitted.append(number)
            await anyio.lowlevel.checkpoint()

    async def work() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(untracked)
            await turns.settle(lambda: len(submitted))
            assert len(submitted) == 9

    play(work)


@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_who_is_cancelled_at_any_moment_is_counted_no_more(play: Play, before: int) -> None:
    turns = TaskTracker()
    ended: list[str] = []

    async def child() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("child")

    async def work() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(turns.together, child(), child())
            await rounds(before)
            group.cancel_scope.cancel()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await turns.together(child(), child())
        await turns.settle(lambda: 0)
        assert turns._awake == 0
        assert turns.current() is None

    play(work)
    assert len(ended) == 4


@pytest.mark.filterwarnings("ignore:coroutine 'TaskTracker.together.<locals>.one' was never awaited")
def test_who_is_cancelled_before_its_first_step_is_counted_no_more() -> None:
    """As when asyncio shuts down; its coroutine is closed, or Python would warn that `rounds` was never awaited."""
    turns = TaskTracker()

    async def work() -> None:
        together = asyncio.create_task(turns.together(rounds(1), rounds(1)))
        await asyncio.sleep(0)
        assert turns._awake == 2
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await together
        assert turns._awake == 0

    asyncio.run(work())
    gc.collect()


def test_a_tracked_task_may_catch_its_cancellation_and_clean_up(play: Play) -> None:
    turns, cleaned = TaskTracker(), list[str]()

    async def act() -> str:
        with anyio.CancelScope() as scope:
            scope.cancel()
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await rounds(3)
                    cleaned.append("yes")
        return "on"

    async def work() -> list[str]:
        return await turns.together(act(), act())

    assert play(work) == ["on", "on"]
    assert cleaned == ["yes", "yes"]
    assert turns._awake == 0


def test_a_cancellation_that_nobody_asked_for_is_an_error_like_any_other() -> None:
    """For example that of a future which somebody else cancelled: it would end a task silently."""
    turns = TaskTracker()

    async def work() -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()

        async def await_it() -> None:
            await future

        with pytest.raises(asyncio.CancelledError):
            await turns.together(await_it(), anyio.sleep_forever())
        with anyio.CancelScope() as scope:
            scope.cancel()
            await turns.together(anyio.sleep_forever(), anyio.sleep_forever())
        assert scope.cancelled_caught

    async def guarded() -> None:
        with anyio.fail_after(20):
            await work()

    anyio.run(guarded)
