"""The shared clock of a run's choreographers: when all tasks rest, every engine that has work makes one step.

All engines step in one hop to one thread, in order, and their results are delivered together. The same tasks therefore
bring the same calls to the same steps, however long each engine takes. A hop makes several steps while their results
wake no task, since a hop can take as long as a step of a small model. Independent of agents and of what a step does.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from time import perf_counter
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
LONGEST = 0.02
"""The most seconds that a hop of several steps is meant to take, so that records and terminals get tokens soon."""
Deliver = Callable[[], None]
"""Delivers the results of a step to the tasks. Called on the event loop."""


class ClockMember(Protocol):
    """A choreographer that steps by a clock. `place` is the number of its engine among those of the run."""

    place: int

    @property
    def busy(self) -> bool:
        """Whether a step has anything to do."""

    @property
    def quiet(self) -> bool:
        """Whether the results of its last step wake no task if those of the step before did not, and there is nothing
        else to do than another step. Called in the thread."""

    def take(self) -> Callable[[], Deliver]:
        """Take the work of the next step. Returns a function for the thread, which returns one for the event loop."""

    def again(self) -> Deliver:
        """Make one more step, with nothing new to do. Called in the thread."""


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
        self._made = deque[Deliver]()
        self._error: Exception | None = None
        self._work = anyio.Event()
        self._delivered: anyio.Event | None = None

    async def __aenter__(self) -> StepClock:
        self._made.clear()
        self._error = self._delivered = None
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
            before = -1
            while any(map(BUSY, self.members)):
                await self.tasks.settle(lambda: self._arrivals)
                woke_nobody, before = before == self._moves, self._moves
                with anyio.CancelScope(shield=True):  # calls taken are run and delivered, also at shutdown
                    busy = [each for each in self.members if each.busy]
                    hop = partial(self._hop, busy, [each.take() for each in busy], before if woke_nobody else None)
                    self._delivered = anyio.Event()
                    try:
                        await self._make(hop)
                    finally:
                        self._delivered.set()
                    if self._error is not None:
                        raise self._error

    async def _make(self, hop: Callable[[], list[Deliver]]) -> None:
        """Make the steps of a hop, and deliver their results."""
        try:
            self._made.extend(await anyio.to_thread.run_sync(hop, limiter=self.thread))
        finally:
            self.deliver()

    async def leave(self, member: ClockMember) -> None:
        """Remove a member, and wait until the results of the hop under way, if there is one, are delivered."""
        self.members.remove(member)
        if self._delivered is not None:
            await self._delivered.wait()

    def deliver(self) -> None:
        """Deliver, on the event loop, the results of the steps made so far. An error in one of them keeps no other from
        being delivered, and ends the loop at the end of the hop."""
        while self._made:
            try:
                self._made.popleft()()
            except Exception as error:
                self._error = self._error or error

    @property
    def _moves(self) -> int:
        """How often a task was woken or a request has arrived."""
        return self.tasks.stirred + self._arrivals

    def _hop(self, busy: list[ClockMember], steps: list[Callable[[], Deliver]], moves: int | None) -> list[Deliver]:
        """Make the steps of one hop, in the thread: those taken, and more until anything moves. Returns the results of
        the last ones, which are delivered together. `moves`: the moves so far. None if the results of the hop before
        woke a task."""
        began, rounds = perf_counter(), 1
        last = [step() for step in steps]
        while busy and moves == self._moves and self._is_quiet(busy):
            if (perf_counter() - began) * (rounds + 1) > LONGEST * rounds:
                break
            self._made.extend(last)
            last = [each.again() for each in busy]
            rounds += 1
        return last

    def _is_quiet(self, busy: list[ClockMember]) -> bool:
        return all(each.quiet for each in busy) and not any(each.busy for each in self.members if each not in busy)

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
