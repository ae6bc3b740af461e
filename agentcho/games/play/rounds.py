"""Rounds of a game: which messages are out, in order, and simultaneous rounds in which moves wait for each other.

If several acts run at the same time in one branch, the order of their messages depends on which of them ends first,
which is noted as `raced`. Each move of a round has its own branch, so moves do not race. Tasks in lockstep act in one
round after another (`lockstep`).

Independent of audiences and encodings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, TypedDict

from agentcho.choreography.quiescence import TaskTracker
from agentcho.errors import ScenarioError
from agentcho.games.play.lockstep import Lockstep, Seat
from agentcho.games.play.precedence import Frontier, Precedence
from agentcho.message import Metadata
from agentcho.protocol.value_checks import type_name
from agentcho.provenance.taint import Seen, TaintTracker
from agentcho.provenance.views import History, MessageLog, Move

Moving = Coroutine[Any, Any, Any]


@dataclass(eq=False)
class Branch:
    """A move of a simultaneous round.

    It holds the messages that were out before the round, those that the move has published so far, those whose text its
    code has looked at (`seen`), and those of which it has `said` anything. `moves` are its places in rounds, the
    outermost first. `floor` precedes everything that it does. `seat` is that of a task in lockstep.
    """

    before: History
    out: MessageLog = field(default_factory=MessageLog)
    seen: Seen | None = None
    said: set[str] = field(default_factory=set)
    moves: tuple[Move, ...] = ()
    floor: Frontier = ()
    seat: Seat | None = None


class Order(TypedDict):
    """The fields of an `Act` about the order of messages."""

    after: Frontier | None
    moves: tuple[Move, ...]


@dataclass(eq=False)
class _Act:
    """An act of the running task, in a branch or (`Rounds`) in none. `depth`: how many acts it is within, itself
    included. `over`: it has ended, but tasks that it started may run on."""

    where: object
    depth: int = 1
    over: bool = False


class _Branches(NamedTuple):
    """The branches of the moves of a round, and the branch that the round is in."""

    outer: Branch | None
    moves: list[Branch]


def check_moves(moves: Sequence[Any]) -> None:
    """Raise `ScenarioError` if one of these moves is not a coroutine."""
    for move in moves:
        if not isinstance(move, Coroutine):
            for other in _coroutines(moves):
                other.close()
            several = "; pass the moves one by one, as in game.together(*moves)" if isinstance(move, Iterable) else ""
            raise ScenarioError(f"{type_name(move)} is not a move; a move is a coroutine, such as ann.say(){several}")


def _coroutines(moves: Iterable[Any]) -> Iterator[Coroutine[Any, Any, Any]]:
    """Yield the coroutines among the moves, and in lists of them."""
    for move in moves:
        if isinstance(move, Coroutine):
            yield move
        elif isinstance(move, list | tuple | set):
            yield from _coroutines(move)


class Rounds:
    """Messages in the order in which they came out.

    A task in a round sees what was out before the round, and the messages of its own move. `told` is called when a
    message has come out for all tasks.
    """

    def __init__(self, tasks: TaskTracker, taint: TaintTracker, precedence: Precedence) -> None:
        self._tasks = tasks
        self.taint = taint
        self.precedence = precedence
        self._out = MessageLog()
        self._branch: ContextVar[Branch | None] = ContextVar("branch", default=None)
        self._under_way: Counter[Branch | None] = Counter()
        self._within: ContextVar[_Act | None] = ContextVar("within", default=None)
        self._numbers = count(1)
        self.raced = False
        self.told: Callable[[], None] | None = None

    @property
    def branch(self) -> Branch | None:
        """The move of the running task, for publishing from another task. None if it is in no round."""
        return self._branch.get()

    def visible(self) -> History:
        """Return what the running task can see."""
        return self._visible(self.branch)

    def _visible(self, branch: Branch | None) -> History:
        return History(self._out) if branch is None else History(branch.out, after=branch.before)

    def order(self) -> Order:
        """Return the frontier of a message that the running task asks for now, and the moves that it belongs to."""
        branch = self.branch
        moves, floor = ((), ()) if branch is None else (branch.moves, branch.floor)
        after = self.precedence.asked(floor)
        self.raced |= after is None  # a task of which it is not known what it awaited
        return {"after": after, "moves": moves}

    def publish(self, message: Metadata, branch: Branch | None) -> None:
        """Publish a message, or keep it in its branch until the round closes."""
        if branch is None:
            self._out.add(message)
            if self.told is not None:
                self.told()
        else:
            branch.out.add(message)
            branch.said.add(message.id)

    @asynccontextmanager
    async def act(self) -> AsyncIterator[None]:
        """A context around an act that waits for the engine and then publishes a message.

        If two acts overlap in one branch, the order of their messages depends on which ends first. At its end, a task
        in lockstep waits for the others. An act within an act, as of an agent that speaks in a tool, is part of it.
        """
        branch, outer = self.branch, self._within.get()
        within = outer is not None and not outer.over and outer.where is (branch or self)
        act = _Act(branch or self, outer.depth + 1 if outer is not None and within else 1)
        before = self._within.set(act)
        self._under_way[branch] += 1
        try:
            yield
        finally:
            act.over = True
            with suppress(ValueError):  # an async generator of the code may be closed in another context
                self._within.reset(before)
            self._under_way[branch] -= 1
            self.raced |= self._under_way[branch] >= act.depth
            if branch is not None and branch.seat is not None:
                branch.seat.moved()  # an act that failed or was cancelled is waited for no longer
        if branch is not None and branch.seat is not None and not within:
            await branch.seat.acted()

    def acting(self, branch: Branch) -> bool:
        """Return whether an act is running in a branch."""
        return self._under_way[branch] > 0

    async def together(self, *moves: Moving) -> list[Any]:
        """Run moves side by side. Their messages come out at the end, in the order of the moves, also on errors."""
        async with self.act():
            with self._moves(moves) as (_, running):
                return await self._tasks.together(*running)

    async def first(self, *moves: Moving) -> Any:
        """Run moves side by side until one has ended, and return its result. The others are cancelled.

        Complete messages come out, in the order of the moves. Which move is first depends on the lengths of all
        messages, so the code counts as having looked at all of them.
        """
        if not moves:
            raise ScenarioError("game.first was given no moves; give at least one, such as ann.say()")
        self.raced = True
        async with self.act():
            with self._moves(moves, race=True) as (branches, running):
                try:
                    return (await self._tasks.first(*running))[1]
                finally:
                    self.taint.raced(branch.said for branch in branches.moves)

    async def side_by_side(self, *runs: Moving) -> None:
        """Run tasks side by side, whose messages come out as they end. Each knows only what it has looked at itself."""
        forks = list[Seen]()

        async def run(work: Moving) -> None:
            forks.append(self.taint.fork())
            await work

        try:
            await self._tasks.together(*map(run, runs))
        finally:
            for work in runs:
                work.close()
            self.taint.join(forks)

    async def lockstep(self, *runs: Moving) -> None:
        """Run tasks in lockstep; see `Lockstep`.

        If tasks fail, raises the error of the first one in order, once the others have finished their current acts.
        """
        async with self.act():
            outer, before = self.branch, self.precedence.join()
            branches = [Branch(self.visible()) for _ in runs]
            together = Lockstep(self._tasks, lambda: any(map(self.acting, branches)))
            last: Frontier = ()

            def close() -> None:
                nonlocal last
                if any(len(branch.out.messages) for branch in branches):
                    last = (branches[0].moves[-1].round,)
                self._publish(branches, outer)
                self._open(branches, outer, last)

            self._open(branches, outer, last)
            seats = [together.seat(lambda: self._pass(last)) for _ in runs]
            for branch, seat in zip(branches, seats, strict=True):
                branch.seat = seat
            running = [self._run(*each) for each in zip(branches, runs, strict=True)]
            try:
                await together.play(running, close)
            finally:
                for run in runs:
                    run.close()
                self.taint.join(branch.seen for branch in branches if branch.seen is not None)
                if last and self.precedence.join() != before:
                    self._pass(last)

    def _open(self, branches: Sequence[Branch], outer: Branch | None, floor: Frontier) -> None:
        """Begin the next round of tasks in lockstep."""
        before, number = self._visible(outer), next(self._numbers)
        path, under = ((), ()) if outer is None else (outer.moves, outer.floor)
        for place, branch in enumerate(branches):
            branch.before, branch.out = before, MessageLog()
            branch.moves, branch.floor = (*path, Move(number, place)), floor or under

    def _pass(self, last: Frontier) -> None:
        """Note that the running task has awaited the end of the last round with a message."""
        for number in last:
            assert isinstance(number, int)
            self.precedence.closed(number)

    def _publish(self, branches: Sequence[Branch], outer: Branch | None) -> None:
        for branch in branches:
            for message in branch.out.messages:
                self.publish(message, outer)
            if outer is not None:
                outer.said |= branch.said

    @contextmanager
    def _moves(self, moves: Sequence[Moving], race: bool = False) -> Iterator[tuple[_Branches, list[Moving]]]:
        """A context in which moves run, each in its own branch. Their messages come out at its end."""
        check_moves(moves)
        before = self.visible()
        outer = self.branch
        number = next(self._numbers)
        preceded = self.precedence.join()
        path, floor = ((), ()) if outer is None else (outer.moves, outer.floor)
        places = [(*path, Move(number, place, race)) for place in range(len(moves))]
        branches = [Branch(before, moves=place, floor=floor) for place in places]
        try:
            yield _Branches(outer, branches), [self._run(*each) for each in zip(branches, moves, strict=True)]
        finally:
            for move in moves:
                move.close()
            self.taint.join(branch.seen for branch in branches if branch.seen is not None)
            self._publish(branches, outer)
            if self.precedence.join() != preceded:
                self.precedence.closed(number)

    async def _run(self, branch: Branch, move: Moving) -> Any:
        self._branch.set(branch)
        branch.seen = self.taint.fork()
        return await move
