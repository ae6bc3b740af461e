"""All workflows of some agents and some messages, each once up to the names of the agents.

A message is said by an agent or by the scenario, before everyone or before some, and an agent's is said having read any
of the messages before it that are for that agent, in any order (or in that in which they were said). Agents are
numbers; an audience is a number whose bits they are. Does not know: resolvers, engines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, permutations
from math import comb, perm
from typing import Literal, NamedTuple


class Who(NamedTuple):
    """Who says a message (None: the scenario), and who may read it: agents as bits, or `everyone`, later ones too."""

    author: int | None
    readers: int
    everyone: bool = False

    def includes(self, agent: int) -> bool:
        """Whether an agent may read it."""
        return bool(self.readers >> agent & 1)

    def covers(self, other: Who) -> bool:
        """Whether all who may read `other`, now or later, may read this."""
        return self.everyone or (not other.everyone and not other.readers & ~self.readers)


class Said(NamedTuple):
    """A message: the number of its `Who` in the scope, that, and the numbers of the messages that it read, in order."""

    kind: int
    who: Who
    reads: tuple[int, ...]


Perms = tuple[tuple[int, ...], ...]
"""Renamings of agents, as what each makes of the numbers of `Who`."""


class Scope:
    """`audiences` "any": everyone, or any agents, its author among them; "three kinds": everyone, its author alone, its
    author and one other (of the scenario: everyone, or one agent). `ordered`: reads in every order. `scenario`: it says
    something too."""

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
        """Every message that can be said next, once up to the names that what was said leaves open (`fixing`: the
        renamings that leave it as it is); with each, what is left of these."""
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
        """All workflows of so many messages."""
        whole: list[tuple[tuple[Said, ...], Perms]] = [((), self.renamings)]
        for _ in range(length):
            whole = [((*said, one), left) for said, fixing in whole for one, left in self.after(said, fixing)]
        yield from whole

    def size(self) -> int:
        """How many workflows there are under all names, by how many messages each agent may read at the time."""
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
        """In how many ways some of so many messages can be read."""
        return sum((perm if self.ordered else comb)(messages, count) for count in range(messages + 1))


def renamed(who: Who, to: tuple[int, ...]) -> Who:
    """The same under other names."""
    readers = sum(1 << to[agent] for agent in range(len(to)) if who.includes(agent))
    return Who(None if who.author is None else to[who.author], readers, who.everyone)
