"""Enumerates all workflows of some agents and messages, each once up to renaming the agents.

A message is said by an agent or by the scenario, to everyone or to some, and an agent's is said after reading any
earlier messages that it may read, in any order (or in their own order). Agents are numbers; an audience is a bit set of
them. Independent of resolvers and engines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, permutations
from math import comb, perm
from typing import Literal, NamedTuple


class Who(NamedTuple):
    """The author of a message (None: the scenario), and its readers, as bits; or `everyone`, including later agents."""

    author: int | None
    readers: int
    everyone: bool = False

    def includes(self, agent: int) -> bool:
        """Whether an agent may read it."""
        return bool(self.readers >> agent & 1)

    def covers(self, other: Who) -> bool:
        """Whether everyone who may read `other`, now or later, may read this."""
        return self.everyone or (not other.everyone and not other.readers & ~self.readers)


class Said(NamedTuple):
    """A message: the index of its `Who` in the scope, the `Who`, and the indices of its reads, in order."""

    kind: int
    who: Who
    reads: tuple[int, ...]


Perms = tuple[tuple[int, ...], ...]
"""Renamings of agents, each as a mapping of the indices of `Who`."""


class Scope:
    """`audiences` "any": everyone, or any agents including the author; "three kinds": everyone, only the author, or the
    author and one other (for the scenario: everyone, or one agent). `ordered`: reads in every order. `scenario`: it
    says something too."""

    def __init__(
        self,
        agents: int,
        messages: int,
        audiences: Literal["any", "three kinds"] = "any",
        ordered: bool = True,
        scenario: bool = True,
    ) -> None:
        self.agents, self.messages, self.audiences = agents, messages, audiences
        self.ordered, self.scenario = ordered, scenario
        self.kinds = tuple(self._kinds())
        names = {who: number for number, who in enumerate(self.kinds)}
        renamings = permutations(range(agents))
        self.renamings: Perms = tuple(tuple(names[renamed(who, to)] for who in self.kinds) for to in renamings)

    def _kinds(self) -> Iterator[Who]:
        everyone = (1 << self.agents) - 1
        for author in (*([None] if self.scenario else []), *range(self.agents)):
            yield Who(author, everyone, True)
            for readers in range(1, everyone + 1):
                who = Who(author, readers)
                if (author is None or who.includes(author)) and self._in_scope(who):
                    yield who

    def _in_scope(self, who: Who) -> bool:
        return self.audiences == "any" or who.readers.bit_count() <= (1 if who.author is None else 2)

    def after(self, said: tuple[Said, ...], fixing: Perms) -> Iterator[tuple[Said, Perms]]:
        """Every message that can be said next, once up to the renamings that leave `said` as it is (`fixing`); each
        with the renamings that leave it unchanged too."""
        for kind, who in enumerate(self.kinds):
            if any(to[kind] < kind for to in fixing):
                continue
            left = tuple(to for to in fixing if to[kind] == kind)
            for reads in self._reads(who.author, said):
                yield Said(kind, who, reads), left

    def _reads(self, author: int | None, said: tuple[Said, ...]) -> Iterator[tuple[int, ...]]:
        if author is None:
            yield ()
            return
        mine = [number for number, one in enumerate(said) if one.who.includes(author)]
        for count in range(len(mine) + 1):
            yield from (permutations if self.ordered else combinations)(mine, count)

    def beginnings(self, length: int) -> Iterator[tuple[tuple[Said, ...], Perms]]:
        """All workflows of that many messages."""
        whole: list[tuple[tuple[Said, ...], Perms]] = [((), self.renamings)]
        for _ in range(length):
            whole = [((*said, one), left) for said, fixing in whole for one, left in self.after(said, fixing)]
        yield from whole

    def size(self) -> int:
        """The number of workflows with all names, computed from the numbers of messages that each agent may read."""
        counts = Counter({(0,) * self.agents: 1})
        for _ in range(self.messages):
            longer = Counter[tuple[int, ...]]()
            for mine, many in counts.items():
                for who in self.kinds:
                    ways = 1 if who.author is None else self._orders(mine[who.author])
                    longer[tuple(n + who.includes(agent) for agent, n in enumerate(mine))] += many * ways
            counts = longer
        return counts.total()

    def _orders(self, messages: int) -> int:
        """The number of ways to read some of that many messages."""
        return sum((perm if self.ordered else comb)(messages, count) for count in range(messages + 1))


def renamed(who: Who, to: tuple[int, ...]) -> Who:
    """The same with other names."""
    readers = sum(1 << to[agent] for agent in range(len(to)) if who.includes(agent))
    return Who(None if who.author is None else to[who.author], readers, who.everyone)
