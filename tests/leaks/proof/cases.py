"""Arbitrary workflows with their encodings, restricted only by the premises of the theorems: one, and two that look the
same to a reader. Independent of the theorems and their proofs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

from .rules import KINDS, Kind, Rules
from .terms import Sort, Symbolic, Thing, Truth


class Case:
    """An arbitrary workflow, its encodings and their cones."""

    def __init__(self, rules: type[Rules], name: str = "") -> None:
        self.terms = Symbolic(name)
        self.rules, self.spec = rules(self.terms), Rules(self.terms)
        self._cones = {kind: self.terms.function(f"cone-{kind}", "message", "message") for kind in KINDS}
        self._made = {kind: self.terms.function(f"made-{kind}", "message") for kind in KINDS}
        self.values = {kind: self.terms.function(f"value-{kind}", "message", result="value") for kind in KINDS}
        self._labels = {kind: self.terms.function(f"label-{kind}", "message", "audience") for kind in KINDS}

    def cone(self, kind: Kind, message: Thing, other: Thing) -> Truth:
        """Whether a message is in the cone of an existing encoding."""
        return self._cones[kind](message, other)

    def made(self, kind: Kind, message: Thing) -> Truth:
        """Whether an encoding exists."""
        return self._made[kind](message)

    def marked(self, kind: Kind, message: Thing, audience: Thing) -> Truth:
        """Whether an audience is a label of an existing encoding."""
        return self._labels[kind](message, audience)

    def all(self, claim: Callable[..., Truth], *sorts: Sort) -> Truth:
        """The claim for all things of these sorts."""
        if not sorts:
            return claim()
        first, *others = sorts
        return self.terms.every(first, lambda thing: self.all(lambda *rest: claim(thing, *rest), *others))

    def each(self, claim: Callable[[Kind], Truth]) -> Truth:
        """The claim for both kinds of encodings."""
        return z3.And(*(claim(kind) for kind in KINDS))

    def fit(self, kind: Kind, message: Thing, other: Thing) -> Truth:
        """Whether everyone that an encoding is made for, including later agents, may read another message."""
        return self.spec.covers(self.spec.audience(other), self.rules.clearance(kind, message))

    def store_is_fit(self) -> Truth:
        """The invariant: everyone that an encoding is made for may read everything in its cone."""

        def claim(kind: Kind, message: Thing, other: Thing) -> Truth:
            here = z3.And(self.made(kind, message), self.cone(kind, message, other))
            return z3.Implies(here, self.fit(kind, message, other))

        return self.each(lambda kind: self.all(lambda m, c: claim(kind, m, c), "message", "message"))

    def heard_by_authors(self) -> Truth:
        """`Messages.audience`: authors may read their own messages."""
        wrote, may_read = self.terms.relation, self.spec.may_read
        return self.all(lambda a, m: z3.Implies(wrote("wrote", a, m), may_read(a, m)), "agent", "message")

    def over_what_is_made(self, message: Thing) -> Truth:
        """An encoding of a message is made over existing encodings only."""

        def claim(kind: Kind, below: Kind, read: Thing) -> Truth:
            return z3.Implies(self.rules.over(kind, message, below, read), self.made(below, read))

        return self.each(lambda kind: self.each(lambda b: self.all(lambda r: claim(kind, b, r), "message")))

    def known(self, message: Thing) -> list[Truth]:
        """The premises when an encoding of a message is made."""
        allowed = z3.Not(self.rules.refused(message))
        return [
            *self.terms.axioms(),
            self.store_is_fit(),
            self.heard_by_authors(),
            allowed,
            self.over_what_is_made(message),
        ]


class Pair:
    """Two workflows that look the same to one reader: the same order, authors, audiences and words of the messages that
    it may read, and the same reads of these that all their readers may read; for its own messages, all reads. What it
    may not read can differ between them or be missing."""

    def __init__(self, rules: type[Rules]) -> None:
        self.cases = (Case(rules, "1"), Case(rules, "2"))
        self.reader = self.cases[0].terms.constant("agent", "reader")

    def alike(self, what: Callable[[Case], Any]) -> Truth:
        """Whether something is the same in both."""
        return what(self.cases[0]) == what(self.cases[1])

    def visible(self) -> list[Truth]:
        """The premises that the reader sees the same."""
        first = self.cases[0]
        return [
            first.all(lambda m: self.alike(lambda case: case.spec.may_read(self.reader, m)), "message"),
            first.all(lambda m: z3.Implies(first.spec.may_read(self.reader, m), self._message(m)), "message"),
        ]

    def _attribute(self, name: str, message: Thing) -> Truth:
        return self.alike(lambda case: case.terms.attribute(name, message))

    def _message(self, message: Thing) -> Truth:
        """The reader sees the same of one message that it may read."""
        first = self.cases[0]
        data = [self._attribute(name, message) for name in ("audience", "own", "words")]
        author = first.all(lambda a: self.alike(lambda case: case.terms.relation("wrote", a, message)), "agent")
        mine = first.terms.relation("wrote", self.reader, message)
        own = z3.And(self._context(message, _reads(message)), self._call(message), self._asked(message))
        return z3.And(*data, author, self._context(message, self._public(message)), z3.Implies(mine, own))

    def _asked(self, message: Thing) -> Truth:
        return self.alike(lambda case: case.terms.relation("asked", message))

    def _public(self, message: Thing) -> Callable[[Case, Thing], Truth]:
        """The reads that the reader may know about: by the rule of the claim, whatever the code's rules are."""

        def stands(case: Case, read: Thing) -> Truth:
            wide = case.spec.covers(case.spec.audience(read), case.spec.audience(message))
            return z3.And(case.terms.relation("reads", message, read), wide)

        return stands

    def _context(self, message: Thing, stands: Callable[[Case, Thing], Truth]) -> Truth:
        """The same messages in the same order."""
        first = self.cases[0]

        def ordered(one: Thing, other: Thing) -> Truth:
            there = z3.And(stands(first, one), stands(first, other))
            return z3.Implies(there, self.alike(lambda case: case.terms.relation("before", message, one, other)))

        same = first.all(lambda r: self.alike(lambda case: stands(case, r)), "message")
        return z3.And(same, first.all(ordered, "message", "message"))

    def _call(self, message: Thing) -> Truth:
        """The same ways of reading, at the same positions."""
        first = self.cases[0]

        def read(one: Thing) -> Truth:
            aside = self.alike(lambda case: case.terms.relation("aside", message, one))
            return z3.And(aside, self.alike(lambda case: case.terms.attribute("placed", message, one)))

        return first.all(lambda r: z3.Implies(first.terms.relation("reads", message, r), read(r)), "message")


def _reads(message: Thing) -> Callable[[Case, Thing], Truth]:
    """All reads of a message."""
    return lambda case, read: case.terms.relation("reads", message, read)
