"""The vocabulary in which the rules of the model are written: relations between agents, audiences and messages, and
logical connectives, either for the solver (`Symbolic`) or over the messages of one play (`Finite`).

So a rule that is written once can be proved for all workflows and computed in any single one. Must not depend on the
rules or on the code that they model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_args

import z3

Truth = Any
"""A bool, or a formula."""
Thing = Any
"""An agent, an audience, a message, a place or words: a value, or a term."""
Sort = Literal["agent", "audience", "message", "place", "words", "value", "request"]


class Terms(ABC):
    """One workflow. A call reads a message at most once; the scenario's messages have no author."""

    @abstractmethod
    def every(self, sort: Sort, claim: Callable[[Thing], Truth]) -> Truth:
        """Whether the claim holds for all things of a sort."""

    @abstractmethod
    def some(self, sort: Sort, claim: Callable[[Thing], Truth]) -> Truth:
        """Whether the claim holds for at least one thing of a sort."""

    @abstractmethod
    def both(self, *parts: Truth) -> Truth:
        """Whether all hold; true if there are none."""

    @abstractmethod
    def either(self, *parts: Truth) -> Truth:
        """Whether at least one holds; false if there are none."""

    @abstractmethod
    def no(self, part: Truth) -> Truth:
        """Whether it does not hold."""

    @abstractmethod
    def same(self, one: Thing, other: Thing) -> Truth:
        """Whether two things are equal, or two truths equivalent."""

    def implies(self, premise: Truth, then: Truth) -> Truth:
        """Whether `then` holds whenever the premise does."""
        return self.either(self.no(premise), then)

    @abstractmethod
    def relation(self, name: str, *things: Thing) -> Truth:
        """Whether these are in a relation: "member" (agent, audience), "everyone" (audience), "there" (agent: it has
        joined), "wrote" (agent, message), "reads" (call's message, message), "aside" (the same: read as others than its
        author do), "before" (call's message, one of its reads, another one later in the prompt), "asked" (message: its
        author asked for positions), "once" (message that was said: see `Rules.once`)."""

    @abstractmethod
    def attribute(self, name: str, *things: Thing) -> Thing:
        """The "audience" of a message; the audience "own" of a message, its author alone; its "words"; the place
        "placed" that a call's author asked for a message it reads, and the place "default", right after the last."""


ARGUMENTS: Mapping[str, tuple[Sort, ...]] = {
    "member": ("agent", "audience"),
    "everyone": ("audience",),
    "there": ("agent",),
    "wrote": ("agent", "message"),
    "reads": ("message", "message"),
    "aside": ("message", "message"),
    "before": ("message", "message", "message"),
    "asked": ("message",),
    "once": ("message",),
}
ATTRIBUTES: Mapping[str, tuple[Sort, ...]] = {
    "audience": ("message", "audience"),
    "own": ("message", "audience"),
    "words": ("message", "words"),
    "placed": ("message", "message", "place"),
    "default": ("place",),
}
SHARED = ("member", "everyone", "there", "default")
"""Names that mean the same in every workflow: audiences are sets of agents everywhere."""
SORTS: Mapping[Sort, Any] = {sort: z3.DeclareSort(sort) for sort in get_args(Sort)}


class Symbolic(Terms):
    """Any workflow: its sorts may have any number of things, even infinitely many. Workflows with different names share
    the agents and audiences, and nothing else."""

    def __init__(self, name: str = "") -> None:
        self._name = name

    def constant(self, sort: Sort, name: str) -> Thing:
        """An arbitrary thing."""
        return z3.Const(name, SORTS[sort])

    def every(self, sort: Sort, claim: Callable[[Thing], Truth]) -> Truth:
        """See `Terms`."""
        thing = z3.FreshConst(SORTS[sort])
        return z3.ForAll([thing], claim(thing))

    def some(self, sort: Sort, claim: Callable[[Thing], Truth]) -> Truth:
        """See `Terms`."""
        thing = z3.FreshConst(SORTS[sort])
        return z3.Exists([thing], claim(thing))

    def both(self, *parts: Truth) -> Truth:
        """See `Terms`."""
        return z3.And(*parts)

    def either(self, *parts: Truth) -> Truth:
        """See `Terms`."""
        return z3.Or(*parts)

    def no(self, part: Truth) -> Truth:
        """See `Terms`."""
        return z3.Not(part)

    def same(self, one: Thing, other: Thing) -> Truth:
        """See `Terms`."""
        return one == other

    def relation(self, name: str, *things: Thing) -> Truth:
        """See `Terms`."""
        return self.function(name, *ARGUMENTS[name])(*things)

    def attribute(self, name: str, *things: Thing) -> Thing:
        """See `Terms`."""
        *sorts, result = ATTRIBUTES[name]
        return self.function(name, *sorts, result=result)(*things)

    def function(self, name: str, *sorts: Sort, result: Sort | None = None) -> Any:
        """An arbitrary function; a relation if it has no result."""
        whole = name if name in SHARED else f"{name}{self._name}"
        return z3.Function(whole, *(SORTS[sort] for sort in sorts), SORTS[result] if result else z3.BoolSort())

    def axioms(self) -> list[Truth]:
        """What holds for every workflow: a message has at most one author, and `own` is its author alone; if no
        position was asked for, each is the default."""
        wrote = self.function("wrote", *ARGUMENTS["wrote"])

        def alone(message: Thing) -> Truth:
            whose = self.attribute("own", message)
            inside = self.every("agent", lambda a: self.same(self.relation("member", a, whose), wrote(a, message)))
            return self.both(self.no(self.relation("everyone", whose)), inside)

        def one(message: Thing) -> Truth:
            return self.every(
                "agent",
                lambda a: self.every(
                    "agent", lambda b: self.implies(self.both(wrote(a, message), wrote(b, message)), a == b)
                ),
            )

        def usual(message: Thing) -> Truth:
            def read(other: Thing) -> Truth:
                return self.same(self.attribute("placed", message, other), self.attribute("default"))

            return self.implies(self.no(self.relation("asked", message)), self.every("message", read))

        return [self.every("message", each) for each in (alone, one, usual)]


class Told(NamedTuple):
    """One message of a play. `readers` None: everyone; `reads` in the order of the prompt, with the positions asked
    for. `asked`: its author asked for any. `once`: see `Rules.once`."""

    author: str | None
    readers: frozenset[str] | None
    reads: tuple[tuple[str, int | None], ...] = ()
    aside: frozenset[str] = frozenset()
    asked: bool = False
    once: bool = False


class Finite(Terms):
    """The messages of one play, by id. Truths are bools."""

    def __init__(self, said: Mapping[str, Told], agents: frozenset[str]) -> None:
        self.said, self._things = said, {"agent": sorted(agents), "message": list(said)}

    def every(self, sort: Sort, claim: Callable[[Thing], Truth]) -> Truth:
        """See `Terms`."""
        return all(claim(thing) for thing in self._things[sort])

    def some(self, sort: Sort, claim: Callable[[Thing], Truth]) -> Truth:
        """See `Terms`."""
        return any(claim(thing) for thing in self._things[sort])

    def both(self, *parts: Truth) -> Truth:
        """See `Terms`."""
        return all(parts)

    def either(self, *parts: Truth) -> Truth:
        """See `Terms`."""
        return any(parts)

    def no(self, part: Truth) -> Truth:
        """See `Terms`."""
        return not part

    def same(self, one: Thing, other: Thing) -> Truth:
        """See `Terms`."""
        return one == other

    def relation(self, name: str, *things: Thing) -> Truth:
        """See `Terms`."""
        match name, things:
            case "member", (agent, audience):
                return audience is not None and agent in audience
            case "everyone", (audience,):
                return audience is None
            case "there", _:
                return True
            case "wrote", (agent, message):
                return self.said[message].author == agent
            case "reads", (message, read):
                return read in self._order(message)
            case "aside", (message, read):
                return read in self.said[message].aside
            case "asked", (message,):
                return self.said[message].asked
            case "once", (message,):
                return self.said[message].once
            case "before", (message, one, other):
                order = self._order(message)
                return one in order and other in order and order.index(one) < order.index(other)
        raise KeyError(name)

    def attribute(self, name: str, *things: Thing) -> Thing:
        """See `Terms`. No rule inspects words, so a message's id stands for them."""
        match name, things:
            case "audience", (message,):
                return self.said[message].readers
            case "own", (message,):
                return frozenset({self.said[message].author} - {None})
            case "words", (message,):
                return message
            case "placed", (message, read):
                return dict(self.said[message].reads).get(read)
            case "default", ():
                return None
        raise KeyError(name)

    def _order(self, message: str) -> list[str]:
        return [read for read, _ in self.said[message].reads]
