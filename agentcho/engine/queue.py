"""The line of calls that wait for a forward: who comes first.

By priority; then what was begun; then those of the workflow that was served least while anybody waited; then by
arrival. Of equal prefills one is encoded for all, and has the highest of their priorities. Does not know: what a call
needs, how many fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from agentcho.calls.call import Turn
from agentcho.engine.encoding import Storage
from agentcho.engine.sequence import Sequence


class Waiting(NamedTuple):
    """A call in line: whose turn it waits for, and its number among all that ever came. `spare`: it was begun ahead of
    its time, and others wait now; it goes on only where these find no room, which it then gives back."""

    call: Sequence
    turn: Turn
    number: int
    spare: bool = False


class Queue:
    """Waiting calls, `waiting` in no order. Calls of one workflow and priority keep theirs: those that others build on
    come first."""

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self._served: Counter[str] = Counter()
        self._arrived = 0

    def __iter__(self) -> Iterator[Sequence]:
        return (each.call for each in self.waiting)

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, calls: Iterable[Sequence], turn: Turn) -> None:
        """To the end. A workflow that was not waiting begins level with the least served that is, with no credit for
        the time it was away."""
        waits = any(each.turn.workflow == turn.workflow and not each.turn.ahead for each in self.waiting)
        if not turn.ahead and not waits:
            here = self._here
            level = min((self._served[workflow] for workflow in here), default=0)
            self._served[turn.workflow] = max(self._served[turn.workflow], level) if here else 0
        for call in calls:
            self.waiting.append(Waiting(call, turn, self._arrived))
            self._arrived += 1

    def line(self) -> list[Waiting]:
        """All, the next one first. What is made ahead comes in when nobody waits for anything, or for the very same; if
        it was begun, last."""
        wanted = [each for each in self.waiting if not each.turn.ahead]
        ahead = [each for each in self.waiting if each.turn.ahead]
        if not ahead or not any(each.call.entry is not None or each.call.due for each in wanted):
            return self._sorted(self.waiting)
        asked = {storage for each in wanted for storage in each.call.holds}
        twins = [each for each in ahead if each.call.own in asked]
        spare = [each._replace(spare=True) for each in ahead if each not in twins and each.call.started]
        return [*self._sorted([*wanted, *twins]), *spare]

    def _sorted(self, line: Iterable[Waiting]) -> list[Waiting]:
        highest: dict[Storage, int] = {}
        for call, turn, *_ in line:
            if call.entry is not None:
                highest[call.entry] = max(turn.priority, highest.get(call.entry, turn.priority))

        def place(waiting: Waiting) -> tuple[int, bool, int, int]:
            call, turn, number, _ = waiting
            priority = turn.priority if call.entry is None else highest[call.entry]
            return -priority, not call.started, self._served[turn.workflow], number

        return sorted(line, key=place)

    @property
    def _here(self) -> set[str]:
        """Workflows that somebody waits in."""
        return {each.turn.workflow for each in self.waiting if not each.turn.ahead}

    def serve(self, waiting: Waiting, tokens: int) -> None:
        """So many tokens were encoded for it, which count where somebody waits for them."""
        self._served[waiting.turn.workflow] += 0 if waiting.turn.ahead else tokens

    def put_back(self, waiting: Waiting) -> None:
        """Where it was in line before it began."""
        self.waiting.append(waiting)

    def keep(self, wanted: Callable[[Sequence], bool]) -> None:
        """Leave out all other calls."""
        self.waiting = [each for each in self.waiting if wanted(each.call)]
        self._served = Counter({workflow: self._served[workflow] for workflow in self._here})
