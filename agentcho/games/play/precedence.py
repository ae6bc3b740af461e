"""Precedence in a game: for each message, the messages whose end its code had awaited when it asked for the message.

One message precedes another if every play of the same code has them in that order: the same task said them in sequence,
or one task ended before the task that had started it continued, or a round closed. Each task of a game has a frontier,
the latest messages (by id) and rounds (by number) that precede whatever it does next. A task that is started takes over
its parent's frontier, and a task that has ended passes its own back.

Tasks may also wait for each other by events, locks or streams, which cannot be observed. If a task continues in the
moment in which exactly one message has ended, and nothing of its own was running, that message is taken to be what it
waited for. A moment lasts until the next step, or until every task waits and no engine has anything to do: who
continues after that was woken by something else, such as a timer. Independent of audiences, encodings and clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from inspect import CORO_CLOSED, getcoroutinestate
from typing import NamedTuple

import anyio

Frontier = tuple[str | int, ...]
"""Ids of messages and numbers of rounds, without duplicates."""


@dataclass(eq=False)
class _Node:
    """One task.

    `frontier` precedes whatever it does next, `forked` is the frontier with which it started, and `children` are the
    tasks that it has started. `moment` is when it last did or joined anything.
    """

    coro: object
    frontier: Frontier
    forked: Frontier
    moment: int
    children: list[_Node] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether its coroutine has ended."""
        return isinstance(self.coro, Coroutine) and getcoroutinestate(self.coro) == CORO_CLOSED


class _Here(NamedTuple):
    """The context of a task: its node, and its current frontier. A new task gets a copy of its parent's."""

    node: _Node
    frontier: Frontier


class Precedence:
    """The precedence of the tasks of one game. `now` returns the number of the current moment."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._here: ContextVar[_Here | None] = ContextVar("here", default=None)
        self._ended_in, self._ended = -1, list[str]()

    def begin(self) -> None:
        """Note that the running task is the game's."""
        self._set(_Node(anyio.get_current_task().coro, (), (), self._now()), ())

    def asked(self, floor: Frontier = ()) -> Frontier | None:
        """Return the frontier of a message that the running task asks for now, `floor` included.

        None if the task does not belong to the game.
        """
        node = self._joined()
        if node is None:
            return None
        return tuple(dict.fromkeys((*floor, *node.frontier, *self._awaited(node))))

    def said(self, id: str, after: Frontier | None) -> None:
        """Note that a message of the running task has ended. It was asked for with the frontier `after`."""
        node, now = self._joined(), self._now()
        if now != self._ended_in:
            self._ended_in, self._ended = now, []
        self._ended = [*(each for each in self._ended if each not in (after or ())), id]
        if node is not None:
            node.moment = now
            self._set(node, (id,))

    def closed(self, number: int) -> None:
        """Note that the running task has awaited the end of a round in which something was said."""
        node = self._joined()
        if node is not None:
            node.moment = self._now()
            self._set(node, (number,))

    def join(self) -> Frontier | None:
        """Take over the frontiers of ended tasks that the running one had started. Returns its frontier."""
        node = self._joined()
        return None if node is None else node.frontier

    def _awaited(self, node: _Node) -> Iterable[str]:
        """Return the message that the task must have waited for, if it is exactly one."""
        now = self._now()
        waited = node.moment < now == self._ended_in
        return self._ended if waited and len(self._ended) == 1 else ()

    def _joined(self) -> _Node | None:
        """Return the node of the running task, with the frontiers of ended tasks that it had started."""
        here, coro = self._here.get(), anyio.get_current_task().coro
        if here is None:
            return None
        node = here.node
        if node.coro is not coro:
            node = _Node(coro, here.frontier, here.frontier, here.node.moment)
            here.node.children.append(node)
        if any(child.ended for child in node.children):
            node.moment = self._now()
            self._set(node, _gathered(node))
        else:
            self._set(node, node.frontier)
        return node

    def _set(self, node: _Node, frontier: Frontier) -> None:
        node.frontier = frontier
        self._here.set(_Here(node, frontier))


def _gathered(node: _Node) -> Frontier:
    """Return the frontier of a task, merged with those of the ended tasks that it had started, which are removed."""
    frontier = node.frontier
    ended, node.children = [c for c in node.children if c.ended], [c for c in node.children if not c.ended]
    for child in ended:
        own = _gathered(child)
        node.children += child.children
        if own != child.forked:
            frontier = (*(each for each in frontier if each not in child.forked or each in own), *own)
    return tuple(dict.fromkeys(frontier))
