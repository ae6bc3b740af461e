"""Rounds of a game: what is out, in order, and simultaneous rounds in which moves wait for each other.

Where several acts are under way whose messages will come out in one place, which of them ends first decides the order:
that is noted, as `raced`. Each move of a round has a place of its own, so moves do not race.

Does not know: audiences, encodings, who may read what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentcho.choreography.quiescence import TaskTracker
from agentcho.errors import ScenarioError
from agentcho.flow.taint import TaintTracker
from agentcho.flow.views import History, MessageLog
from agentcho.message import Metadata

Move = Coroutine[Any, Any, Any]


@dataclass(eq=False)
class Branch:
    """A move of a simultaneous round: what was out before the round, what the move has put out so far, the messages
    whose words its code has looked at, and those of which it has `said` anything."""

    before: History
    out: MessageLog = field(default_factory=MessageLog)
    sources: set[str] = field(default_factory=set)
    said: set[str] = field(default_factory=set)


class _Branches(NamedTuple):
    """Those of the moves of a round, and the one that the round is in."""

    outer: Branch | None
    moves: list[Branch]


class Rounds:
    """Messages in the order they came out. A task in a round sees what was out before, and its own moves. `told` is
    called when something has come out for all."""

    def __init__(self, tasks: TaskTracker, taint: TaintTracker) -> None:
        self._tasks, self.taint = tasks, taint
        self._out = MessageLog()
        self._branch: ContextVar[Branch | None] = ContextVar("branch", default=None)
        self._under_way: Counter[Branch | None] = Counter()
        self.raced = False
        self.told: Callable[[], None] | None = None

    @property
    def branch(self) -> Branch | None:
        """The move of a round that the running task is, to publish from another task; None: it is in no round."""
        return self._branch.get()

    def visible(self) -> History:
        """What the running task can see."""
        branch = self.branch
        return History(self._out) if branch is None else History(branch.out, after=branch.before)

    def publish(self, message: Metadata, branch: Branch | None) -> None:
        """Let a message out, or keep it with the moves of a round until that closes."""
        if branch is None:
            self._out.add(message)
            if self.told is not None:
                self.told()
        else:
            branch.out.add(message)
            branch.said.add(message.id)

    @contextmanager
    def act(self, branch: Branch | None) -> Iterator[None]:
        """Around what waits for the engine and then lets a message out there. Where two overlap, which of them ends
        first decides the order of what they let out."""
        self._under_way[branch] += 1
        try:
            yield
        finally:
            self._under_way[branch] -= 1
            self.raced |= self._under_way[branch] > 0

    async def together(self, *moves: Coroutine[Any, Any, Any]) -> list[Any]:
        """Run moves side by side; all come out at the end, move by move in the order given, errors or not."""
        with self._moves(moves) as (branches, running), self.act(branches.outer):
            return await self._tasks.together(*running)

    async def first(self, *moves: Coroutine[Any, Any, Any]) -> Any:
        """Run moves side by side until one has ended, and return what that returns; the others are cancelled. All that
        is whole by then comes out, move by move in the order given. Who was first depends on how long each message
        became, so that the code has looked at all of them."""
        if not moves:
            raise ScenarioError("a race of no moves; give game.first at least one, such as ann.say()")
        self.raced = True
        with self._moves(moves) as (branches, running), self.act(branches.outer):
            try:
                return (await self._tasks.first(*running))[1]
            finally:
                self.taint.join([branch.said for branch in branches.moves])

    @contextmanager
    def _moves(self, moves: Sequence[Move]) -> Iterator[tuple[_Branches, list[Move]]]:
        """A context in which moves run, each in a branch of its own; at its end what they said comes out."""
        before, outer = self.visible(), self.branch
        branches = [Branch(before) for _ in moves]
        try:
            yield _Branches(outer, branches), [self._run(*each) for each in zip(branches, moves, strict=True)]
        finally:
            for move in moves:
                move.close()
            self.taint.join([branch.sources for branch in branches])
            for branch in branches:
                for message in branch.out.messages:
                    self.publish(message, outer)
                if outer is not None:
                    outer.said |= branch.said

    async def _run(self, branch: Branch, move: Coroutine[Any, Any, Any]) -> Any:
        self._branch.set(branch)
        branch.sources = self.taint.fork()
        return await move
