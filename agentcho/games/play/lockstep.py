"""Tasks in lockstep: each acts once, and all wait until each has acted before any of them continues.

The order of what they publish then depends on the number of acts, and not on how long any of them took. A task that
waits for something other than its own act, such as an event of another task, is not waited for. Independent of what an
act is and of what it publishes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import anyio

from agentcho.choreography.quiescence import TaskTracker, TrackedTask, ended_from_outside


class Seat:
    """The place of one task. `passed` is called in the task when it continues."""

    def __init__(self, moved: Callable[[], None], tasks: TaskTracker, passed: Callable[[], None]) -> None:
        self._moved = moved
        self._tasks = tasks
        self._passed = passed
        self._waiting: list[tuple[anyio.Event, TrackedTask | None]] = []
        self.error: BaseException | None = None

    @property
    def waits(self) -> bool:
        """Whether it has acted, and waits for the others."""
        return bool(self._waiting)

    def moved(self) -> None:
        """Note that an act of the task has ended, in whatever way."""
        self._moved()

    async def acted(self) -> None:
        """Note that the task has acted, and return when every task has. A task that is cancelled waits no longer."""
        event, task = anyio.Event(), self._tasks.current()
        self._waiting.append((event, task))
        self._moved()
        try:
            await event.wait()
        finally:
            self._waiting = [each for each in self._waiting if each[0] is not event]
        self._passed()

    def go_on(self) -> None:
        """Let the task continue. It counts as awake from now."""
        waiting, self._waiting = self._waiting, []
        for event, task in waiting:
            if task is not None:
                task.wake()
            event.set()

    async def run(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run its task to the end, and keep its error."""
        try:
            await work
        except BaseException as error:
            if ended_from_outside(error):
                raise
            self.error = error
        finally:
            self._moved()


class Lockstep:
    """Tasks side by side in lockstep. `acting` tells whether an act of theirs is running."""

    def __init__(self, tasks: TaskTracker, acting: Callable[[], bool]) -> None:
        self._tasks, self._acting = tasks, acting
        self._seats: list[Seat] = []
        self._event = anyio.Event()
        self._hold = TrackedTask(tasks)
        self._given_up = False

    def seat(self, passed: Callable[[], None]) -> Seat:
        """Return a place for one more task."""
        self._seats.append(Seat(self._moved, self._tasks, passed))
        return self._seats[-1]

    async def play(self, works: Sequence[Coroutine[Any, Any, Any]], close: Callable[[], None]) -> None:
        """Run a task for each place. `close` is called when each has acted, and at the end.

        Raises the error of the first place that had one by then, with the other tasks cancelled.
        """
        running = [seat.run(work) for seat, work in zip(self._seats, works, strict=True)]
        try:
            async with anyio.create_task_group() as group:
                with anyio.CancelScope() as scope:
                    group.start_soon(self._judge, close, scope)
                    await self._tasks.together(*running)
                group.cancel_scope.cancel()
        finally:
            self._hold.rest()
            for work in works:
                work.close()
        close()
        for seat in self._seats:
            if seat.error is not None:
                raise seat.error

    def _moved(self) -> None:
        """Note that a task has acted or ended. No engine step is made before it is decided whether all continue."""
        if not self._given_up:
            self._hold.wake()
            self._event.set()

    async def _judge(self, close: Callable[[], None], scope: anyio.CancelScope) -> None:
        while True:
            await self._event.wait()
            self._event = anyio.Event()
            self._hold.wake()
            await self._tasks.others_rest(self._hold)
            if not self._acting():
                if any(seat.error is not None for seat in self._seats):
                    self._given_up = True
                    self._hold.rest()
                    scope.cancel()
                    return
                if any(seat.waits for seat in self._seats):
                    close()
                    for seat in self._seats:
                        seat.go_on()
            self._hold.rest()
