"""Counts the awake tasks: a step starts once every task that the last step woke is waiting again.

Requests that agents make at the same time then share a step. A tracked task runs through a wrapper that sees each of
its suspensions and resumptions. Waiting for anything counts as rest. A task that is woken here counts as awake at once,
before the event loop resumes it. Nothing is timed or polled. Independent of engines, agents and requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from math import inf
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from agentcho.protocol.call_site import called_at

T = TypeVar("T")


class TrackedTask:
    """One tracked task. Call `wake` before letting it continue, so that it counts from then.

    Both calls are idempotent.
    """

    def __init__(self, tracker: TaskTracker) -> None:
        self._tracker, self._awake = tracker, False
        self.work: Coroutine[Any, Any, Any] | None = None

    @property
    def awake(self) -> bool:
        """Whether it counts as awake."""
        return self._awake

    def wake(self) -> None:
        """Count as awake."""
        if not self._awake:
            self._awake = True
            self._tracker.count(+1)

    def rest(self) -> None:
        """Count as waiting."""
        if self._awake:
            self._awake = False
            self._tracker.count(-1)


class TaskTracker:
    """All tracked tasks of one choreographer.

    A step waits for at most `patience` rounds of the event loop after all tasks were woken. A task that polls for
    something that only a step can bring must not stop the steps.
    """

    def __init__(self, patience: int = 1000) -> None:
        self._patience = patience
        self._awake = self._judging = 0
        self._stirred = 0
        self._still = anyio.Event()
        self._by_task: dict[int, TrackedTask] = {}

    def count(self, change: int) -> None:
        """Add `change` to the number of awake tasks. Called by `TrackedTask`."""
        self._awake += change
        self._stirred += change > 0
        if self._awake == 0:
            self._still.set()

    @property
    def stirred(self) -> int:
        """How often a task was woken."""
        return self._stirred

    @property
    def resting(self) -> tuple[Coroutine[Any, Any, Any], ...]:
        """The coroutines of tracked tasks that are waiting now."""
        return tuple(task.work for task in self._by_task.values() if task.work is not None and not task.awake)

    def current(self) -> TrackedTask | None:
        """Return the running task, or None if it is not tracked."""
        return self._by_task.get(anyio.get_current_task().id)

    async def settle(self, activity: Callable[[], int]) -> None:
        """Return once no task is awake and nothing has moved for two rounds of the event loop.

        `activity` counts what untracked tasks do (their submissions), so that chains of them settle as well.
        """
        quiet = 0
        for _ in range(self._patience):
            while self._awake:
                self._still = anyio.Event()
                await self._still.wait()
            before = self._stirred + activity()
            await anyio.lowlevel.checkpoint()
            quiet = quiet + 1 if before == self._stirred + activity() and not self._awake else 0
            if quiet == 2:
                return

    async def run(self, work: Coroutine[Any, Any, T], task: TrackedTask | None = None) -> T:
        """Run `work` in the current task, tracked. A task that is tracked already just runs it."""
        if task is None and self.current() is not None:
            return await work
        task = task or TrackedTask(self)
        id = anyio.get_current_task().id
        self._by_task[id], task.work = task, work
        try:
            with called_at(None):  # the line that started this task is not the line of what it calls
                return await _CountedAwaitable(work, task)
        finally:
            del self._by_task[id]
            task.rest()
            task.work = None

    async def together(self, *works: Coroutine[Any, Any, Any]) -> list[Any]:
        """Run all concurrently, each tracked. Return their results in order, or raise the first error and cancel the
        rest."""
        parent, errors = self.current(), list[BaseException]()
        results: list[Any] = [None] * len(works)
        left = len(works)

        async def one(place: int, work: Coroutine[Any, Any, Any], task: TrackedTask) -> None:
            nonlocal left
            try:
                results[place] = await self.run(self._ending(work, ended), task)
            except BaseException as error:  # some of these would end the event loop
                if ended_from_outside(error):
                    raise
                errors.append(error)
                group.cancel_scope.cancel()

        def ended() -> None:
            nonlocal left
            left -= 1
            if left == 0 and parent is not None:
                parent.wake()

        tasks = [TrackedTask(self) for _ in works]
        try:
            async with anyio.create_task_group() as group:
                for place, (work, task) in enumerate(zip(works, tasks, strict=True)):
                    task.wake()
                    group.start_soon(one, place, work, task)
        finally:  # a task cancelled before its first step has not cleaned up
            for work, task in zip(works, tasks, strict=True):
                work.close()
                task.rest()
        if errors:
            raise errors[0]
        return results

    async def first(self, *works: Coroutine[Any, Any, Any]) -> tuple[int, Any]:
        """Run all concurrently, each tracked, until one of them ends. The rest is cancelled.

        Returns its index and result, or raises its error. Of those that end before the next step, the first in order
        counts.
        """
        parent, ends = self.current(), dict[int, tuple[Any, BaseException | None]]()

        async def one(place: int, work: Coroutine[Any, Any, Any], task: TrackedTask) -> None:
            try:
                ends[place] = await self.run(self._ending(work, ended), task), None
            except BaseException as error:
                if ended_from_outside(error):
                    raise
                ends[place] = None, error
            any_ended.set()

        def ended() -> None:
            if parent is not None and not any_ended.is_set():
                parent.wake()  # no step before the winner is decided

        async def judge() -> None:
            await any_ended.wait()
            await self.others_rest(parent)
            group.cancel_scope.cancel()

        any_ended, tasks = anyio.Event(), [TrackedTask(self) for _ in works]
        try:
            async with anyio.create_task_group() as group:
                for place, (work, task) in enumerate(zip(works, tasks, strict=True)):
                    task.wake()
                    group.start_soon(one, place, work, task)
                group.start_soon(judge)
        finally:
            for work, task in zip(works, tasks, strict=True):
                work.close()
                task.rest()
        place = min(ends)
        result, error = ends[place]
        if error is not None:
            raise error
        return place, result

    async def others_rest(self, parent: TrackedTask | None) -> None:
        """Return once every task that the last step woke is waiting.

        Only tasks that wait here, such as `parent`, still count as awake then, and no task changes state.
        """
        quiet, here = 0, int(parent is not None)
        self._judging += here
        try:
            for _ in range(self._patience):
                before = self._stirred
                await anyio.lowlevel.checkpoint()
                quiet = quiet + 1 if before == self._stirred and self._awake <= self._judging else 0
                if quiet == 2:
                    return
        finally:
            self._judging -= here

    @staticmethod
    async def _ending(work: Coroutine[Any, Any, T], ended: Callable[[], None]) -> T:
        """Run `work`, and call `ended` while this task still counts as awake, so that the parent can be woken first."""
        try:
            return await work
        finally:
            ended()


class _CountedAwaitable(Awaitable[T]):
    """Awaits a coroutine, and counts its task as resting at each suspension and as awake at each resumption."""

    def __init__(self, work: Coroutine[Any, Any, T], task: TrackedTask) -> None:
        self._work, self._task = work, task

    def __await__(self) -> Generator[Any, Any, T]:
        inner = self._work.__await__()
        resume: Callable[[], Any] = lambda: next(inner)  # noqa: E731
        while True:
            self._task.wake()
            try:
                trap = resume()
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            self._task.rest()
            resume = yield from self._pass_on(inner, trap)

    @staticmethod
    def _pass_on(inner: Generator[Any, Any, Any], trap: Any) -> Generator[Any, Any, Callable[[], Any]]:
        """Hand a suspension to the event loop, and return the function that resumes `inner`."""
        try:
            value = yield trap
        except BaseException as error:
            thrown = error
            return lambda: inner.throw(thrown)
        return lambda: inner.send(value)


def ended_from_outside(error: BaseException) -> bool:
    """Return whether a task was ended from outside, by closing or cancelling it.

    A cancellation that was not requested is the task's own: it awaited something that was cancelled.
    """
    if isinstance(error, GeneratorExit):
        return True
    if not isinstance(error, anyio.get_cancelled_exc_class()):
        return False
    task = asyncio.current_task() if isinstance(error, asyncio.CancelledError) else None
    return task is None or task.cancelling() > 0 or anyio.current_effective_deadline() == -inf
