"""The line of calls that wait for a forward: who comes first.

By priority; then what was begun; then those of the workflow that was served least while anybody waited; then by
arrival. Of equal prefills one is encoded for all, and has the highest of their priorities. Does not know: what a call
needs, how many fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from agentcho.engine.encoding import Storage
from agentcho.engine.pending import Pending, PendingPrefill
from agentcho.request import Turn


class Waiting(NamedTuple):
    """A call in line: whose turn it waits for, and its number among all that ever came."""

    call: Pending
    turn: Turn
    number: int


class Queue:
    """Waiting calls. Calls of one workflow and priority keep their order: those that others build on come first."""

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []
        self._served: Counter[str] = Counter()
        self._arrived = 0

    def __iter__(self) -> Iterator[Pending]:
        return (each.call for each in self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, calls: Iterable[Pending], turn: Turn) -> None:
        """To the end. A workflow that was not waiting begins level with the least served that is, with no credit for
        the time it was away."""
        here = {each.turn.workflow for each in self._waiting}
        if turn.workflow not in here:
            level = min((self._served[workflow] for workflow in here), default=0)
            self._served[turn.workflow] = max(self._served[turn.workflow], level) if here else 0
        for call in calls:
            self._waiting.append(Waiting(call, turn, self._arrived))
            self._arrived += 1

    def line(self) -> list[Waiting]:
        """All, the next one first. What is made ahead comes in when nobody waits for anything, or for the very same."""
        wanted = [each for each in self._waiting if not each.turn.ahead]
        storages = {call.storage for call, _, _ in wanted if isinstance(call, PendingPrefill)}
        twins = [each for each in self._waiting if each.turn.ahead and _made_by(each) in storages]
        line = [*wanted, *twins] if any(_waits(each.call) for each in wanted) else self._waiting
        highest: dict[Storage, int] = {}
        for call, turn, _ in line:
            if isinstance(call, PendingPrefill):
                highest[call.storage] = max(turn.priority, highest.get(call.storage, turn.priority))

        def place(waiting: Waiting) -> tuple[int, bool, int, int]:
            call, turn, number = waiting
            priority, begun = turn.priority, False
            if isinstance(call, PendingPrefill):
                priority, begun = highest[call.storage], call.started
            return -priority, not begun, self._served[turn.workflow], number

        return sorted(line, key=place)

    def serve(self, waiting: Waiting, tokens: int) -> None:
        """So many tokens were encoded for it."""
        self._served[waiting.turn.workflow] += tokens

    def keep(self, wanted: Callable[[Pending], bool]) -> None:
        """Leave out all other calls."""
        self._waiting = [each for each in self._waiting if wanted(each.call)]
        here = {each.turn.workflow for each in self._waiting}
        self._served = Counter({workflow: self._served[workflow] for workflow in here})


def _waits(call: Pending) -> bool:
    """Whether it could use the next forward; a shadow may not want it yet."""
    return isinstance(call, PendingPrefill) or call.row.due


def _made_by(waiting: Waiting) -> Storage | None:
    """What a prefill encodes."""
    return waiting.call.storage if isinstance(waiting.call, PendingPrefill) else None
