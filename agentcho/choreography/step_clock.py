"""The shared clock of a run's choreographers: when all tasks rest, every engine that has work makes one step.

All engines step in one hop to one thread, in order, and their results are delivered together. The same tasks therefore
bring the same calls to the same steps, however long each engine takes. Independent of agents and of what a step does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from operator import attrgetter
from types import TracebackType
from typing import Protocol

import anyio
import anyio.abc
import anyio.to_thread

from agentcho.choreography.quiescence import TaskTracker
from agentcho.choreography.wait_sites import WaitSite, wait_of

LOG = logging.getLogger(__name__)
"""Logs the waits of tasks, never message contents."""
BUSY = attrgetter("busy")
Deliver = Callable[[], None]
"""Delivers the results of a step to the tasks. Called on the event loop."""


class ClockMember(Protocol):
    """A choreographer that steps by a clock. `place` is the number of its engine among those of the run."""

    place: int

    @property
    def busy(self) -> bool:
        """Whether a step has anything to do."""

    def take(self) -> Callable[[], Deliver]:
        """Take the work of the next step. Returns a function for the thread, which returns one for the event loop."""


class StepClock:
    """Steps its `members`, in the order of their places. As an async context manager it steps from entry to exit.

    `tasks` are the tasks of all members, and `thread` is where every engine is called. With nothing to do for
    `quiet_after` seconds, the log says once which tasks wait for what. `rests` counts how often there was nothing to do
    and every task waited.
    """

    def __init__(self, quiet_after: float) -> None:
        self._quiet_after = quiet_after
        self.tasks = TaskTracker()
        self.members: list[ClockMember] = []
        self._arrivals = self.rests = 0
        self._work = anyio.Event()

    async def __aenter__(self) -> StepClock:
        self._group: anyio.abc.TaskGroup = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._loop)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._group.cancel_scope.cancel()
        if isinstance(error, Exception):  # raised by the body: it must propagate as it is, not in a group
            await self._group.__aexit__(None, None, None)
            return False
        return await self._group.__aexit__(kind, error, trace)

    def add(self, member: ClockMember) -> None:
        """Add a member."""
        if not self.members:
            self.thread = anyio.CapacityLimiter(1)  # a limiter of its own: agents may occupy all other threads
        self.members.append(member)
        self.members.sort(key=lambda each: each.place)

    def arrived(self) -> None:
        """Note that a request has arrived."""
        self._arrivals += 1
        self._work.set()

    def wake(self) -> None:
        """Note that there is something for a step to do."""
        self._work.set()

    def waiting(self) -> tuple[WaitSite, ...]:
        """Return the tasks that wait, and what each waits for."""
        return tuple(wait_of(work) for work in self.tasks.resting)

    async def _loop(self) -> None:
        while True:
            await self._rest()
            self._work = anyio.Event()
            while any(map(BUSY, self.members)):
                await self.tasks.settle(lambda: self._arrivals)
                with anyio.CancelScope(shield=True):  # calls taken are run and delivered, also at shutdown
                    steps = [each.take() for each in self.members if each.busy]
                    hop = (step() for step in steps)  # consumed in the thread
                    for deliver in await anyio.to_thread.run_sync(list, hop, limiter=self.thread):
                        deliver()

    async def _rest(self) -> None:
        """Wait until there is work. If none comes for long, the log says once which tasks wait for what."""
        await self.tasks.settle(lambda: self._arrivals)
        self.rests += not self._work.is_set()
        with anyio.move_on_after(self._quiet_after):
            await self._work.wait()
            return
        if waits := self.waiting():
            told = "; ".join(map(str, waits))
            LOG.warning("nothing has moved for %g s, and the engine has nothing to do: %s", self._quiet_after, told)
        await self._work.wait()
