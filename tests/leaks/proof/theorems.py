"""Theorems about the model, proved by a solver (z3) for workflows of any size: induction steps. Each states what holds
before one more encoding is made, or one more call reads, and what holds after it.

There may be any number of messages, agents and audiences, so nothing is bounded. A step is proved if its negation has
no model. That an invariant of all steps holds in the end is the induction, which is not the solver's part: encodings
are made one after another, and each over existing ones (`Resolver._encoding`). Must not depend on the code that the
rules model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Literal, NamedTuple

import z3

from .cases import Case, Pair
from .rules import KINDS, Kind, Rules, Salting
from .terms import Symbolic, Thing, Truth

MILLISECONDS = 60_000
"""The timeout of the solver."""


Answer = Literal["proved", "refuted", "unknown"]


class Step(NamedTuple):
    """The premises of a step, and its goal."""

    premises: list[Truth]
    goal: Truth


class Theorem(NamedTuple):
    """`says` states in words what `step` states in rules."""

    name: str
    says: str
    step: Callable[[type[Rules], type[Salting]], Step]


class Verdict(NamedTuple):
    """The solver's answer: proved, refuted by a workflow (`shown`), or unknown."""

    name: str
    answer: Answer
    seconds: float
    shown: str = ""


def prove(theorem: Theorem, rules: type[Rules] = Rules, salting: type[Salting] = Salting) -> Verdict:
    """Ask the solver for a workflow in which all premises hold and the goal does not."""
    step, solver = theorem.step(rules, salting), z3.Solver()
    solver.set("timeout", MILLISECONDS)
    solver.add(*step.premises, z3.Not(step.goal))
    began = perf_counter()
    answers: dict[str, Answer] = {"unsat": "proved", "sat": "refuted", "unknown": "unknown"}
    answer = answers[str(solver.check())]
    shown = str(solver.model()) if answer == "refuted" else ""
    return Verdict(theorem.name, answer, perf_counter() - began, shown)


def made_fit(rules: type[Rules], _: type[Salting]) -> Step:
    """One more encoding is made."""
    case = Case(rules)
    new, other = case.terms.constant("message", "new"), case.terms.constant("message", "other")

    def goal(kind: Kind) -> Truth:
        return z3.Implies(case.rules.in_cone(kind, new, other, case.cone), case.fit(kind, new, other))

    return Step(case.known(new), case.each(goal))


def served_fit(rules: type[Rules], _: type[Salting]) -> Step:
    """One more call reads one message."""
    case = Case(rules)
    call, read, other = (case.terms.constant("message", name) for name in ("call", "read", "other"))
    reader, t = case.terms.constant("agent", "reader"), case.terms
    reads = z3.And(t.relation("wrote", reader, call), t.relation("reads", call, read))

    def goal(kind: Kind) -> Truth:
        served = z3.And(reads, case.rules.serves(kind, call, read), case.cone(kind, read, other))
        return z3.Implies(served, case.spec.may_read(reader, other))

    return Step(case.known(call), case.each(goal))


def repaired_fit(rules: type[Rules], _: type[Salting]) -> Step:
    """One more repair in a caller's own prompt: over what precedes it there, with some tokens kept from a base."""
    case = Case(rules)
    call, read, other = (case.terms.constant("message", name) for name in ("call", "read", "other"))
    reader, t = case.terms.constant("agent", "reader"), case.terms
    stands, reached = t.function("stands", "message"), t.function("cone-here", "message", "message")

    def before(message: Thing, behind: Thing) -> Truth:
        here = z3.And(stands(message), reached(message, behind))
        return z3.Implies(here, case.spec.may_read(reader, behind))

    reads = [t.relation("wrote", reader, call), t.relation("reads", call, read), z3.Not(case.rules.own(call, read))]
    kept = [z3.And(case.rules.base(kind), case.made(kind, read), case.cone(kind, read, other)) for kind in KINDS]
    over = t.some("message", lambda m: z3.And(stands(m), reached(m, other)))
    goal = z3.Implies(z3.Or(other == read, over, *kept), case.spec.may_read(reader, other))
    return Step([*case.known(call), *reads, case.all(before, "message", "message")], goal)


def guarded(rules: type[Rules], _: type[Salting]) -> Step:
    """One more encoding is labelled, and its guard is asked for an arbitrary `clearance`."""
    case, new = Case(rules), Symbolic().constant("message", "new")
    wanted, audience = case.terms.constant("audience", "clearance"), case.terms.constant("audience", "some audience")

    def told(kind: Kind, message: Thing, whose: Thing, cone: Callable[..., Truth]) -> Truth:
        return case.terms.some("message", lambda c: z3.And(cone(kind, message, c), case.rules.audience(c) == whose))

    def kept(kind: Kind, message: Thing, whose: Thing) -> Truth:
        return case.marked(kind, message, whose) == told(kind, message, whose, case.cone)

    def in_cone(kind: Kind, message: Thing, other: Thing) -> Truth:
        return case.rules.in_cone(kind, message, other, case.cone)

    def goal(kind: Kind) -> Truth:
        label = case.rules.labelled(kind, new, audience, case.marked)
        passes = case.all(
            lambda k: z3.Implies(case.rules.labelled(kind, new, k, case.marked), case.spec.covers(k, wanted)),
            "audience",
        )
        clean = case.all(
            lambda c: z3.Implies(in_cone(kind, new, c), case.spec.covers(case.spec.audience(c), wanted)), "message"
        )
        return z3.And(label == told(kind, new, audience, in_cone), passes == clean)

    labels = case.each(lambda kind: case.all(lambda m, k: kept(kind, m, k), "message", "audience"))
    return Step([*case.terms.axioms(), labels], case.each(goal))


def denied_fit(rules: type[Rules], _: type[Salting]) -> Step:
    """One more call under deny, where each message is read through its author's encoding."""
    case = Case(rules)
    call, other = case.terms.constant("message", "call"), case.terms.constant("message", "other")
    reader, t = case.terms.constant("agent", "reader"), case.terms
    hears, behind = t.function("hears", "agent", "message"), t.function("behind", "message", "message")

    def clean(agent: Thing, message: Thing, far: Thing) -> Truth:
        return z3.Implies(z3.And(hears(agent, message), behind(message, far)), case.spec.may_read(agent, far))

    def reaches(far: Thing) -> Truth:
        reads = t.some("message", lambda r: z3.And(t.relation("reads", call, r), behind(r, far)))
        return z3.Or(far == call, reads)

    asked = z3.And(t.relation("wrote", reader, call), z3.Not(case.rules.denied(call, hears)))
    served = z3.Implies(z3.And(asked, reaches(other)), case.spec.may_read(reader, other))
    heard = z3.Implies(z3.And(case.rules.hears(reader, call, hears), reaches(other)), case.spec.may_read(reader, other))
    before = case.all(clean, "agent", "message", "message")
    return Step([*t.axioms(), case.heard_by_authors(), before], z3.And(served, heard))


def salted(rules: type[Rules], salting: type[Salting]) -> Step:
    """Two requests with one salt, and the agent that asks one of them."""
    case = Case(rules)
    t = case.terms
    asked, holds = t.function("asked", "request", "agent"), t.function("holds", "request", "message")
    last = t.function("last", "request", "message")
    salts = salting(case.rules, asked, holds, last)
    one, other, reader = t.constant("request", "one"), t.constant("request", "other"), t.constant("agent", "reader")
    message, another = t.constant("message", "message"), t.constant("agent", "another")
    shared = [asked(one, reader), salts.salt_is_one(one, other), holds(other, message)]
    one_asks = case.all(
        lambda q, a, b: z3.Implies(z3.And(asked(q, a), asked(q, b)), a == b), "request", "agent", "agent"
    )
    ends = case.all(lambda q, m: z3.Implies(last(q, m), holds(q, m)), "request", "message")
    mine = z3.And(asked(other, another), another == reader)
    fair = z3.Implies(asked(other, another), z3.Or(case.spec.may_read(reader, message), mine))
    return Step([one_asks, ends, *shared], fair)


def served_alike(rules: type[Rules], _: type[Salting]) -> Step:
    """One more encoding that the reader may be served, in two workflows that look the same to it: X of what it may
    read, E of its own. It has the same words and class, over the same encodings, in the same order, at the same
    positions; so any function of these is the same."""
    pair = Pair(rules)
    first, reader = pair.cases[0], pair.reader
    new, read, after = (first.terms.constant("message", name) for name in ("new", "read", "after"))
    values = [case.values for case in pair.cases]

    def theirs(kind: Kind, message: Thing) -> Truth:
        mine = first.terms.relation("wrote", reader, message)
        visible = first.spec.may_read(reader, message)
        return z3.And(visible, mine) if kind == "author" else visible

    def equal(kind: Kind, message: Thing) -> Truth:
        return values[0][kind](message) == values[1][kind](message)

    before = first.each(lambda kind: first.all(lambda m: z3.Implies(theirs(kind, m), equal(kind, m)), "message"))
    once = first.all(lambda m: z3.Implies(theirs("author", m), pair.alike(_said_once(m))), "message")

    def stands(case: Case, kind: Kind, one: Thing) -> Truth:
        return z3.Or(*(case.rules.over(kind, new, below, one) for below in KINDS))

    def same_below(kind: Kind, below: Kind) -> Truth:
        return pair.alike(lambda case: case.rules.over(kind, new, below, read))

    def goal(kind: Kind) -> Truth:
        over = [same_below(kind, below) for below in KINDS]
        made = [z3.Implies(first.rules.over(kind, new, b, read), equal(b, read)) for b in KINDS]
        there = z3.And(stands(first, kind, read), stands(first, kind, after))
        order = z3.Implies(there, pair.alike(lambda case: case.terms.relation("before", new, read, after)))
        place = z3.Implies(stands(first, kind, read), pair.alike(lambda case: case.rules.place(kind, new, read)))
        words = pair.alike(lambda case: case.terms.attribute("words", new))
        whom = pair.alike(lambda case: case.rules.clearance(kind, new))
        return z3.Implies(theirs(kind, new), z3.And(*over, *made, order, place, words, whom))

    allowed = [z3.Not(case.rules.refused(new)) for case in pair.cases]
    axioms = [axiom for case in pair.cases for axiom in case.terms.axioms()]
    return Step([*axioms, *pair.visible(), before, once, *allowed], first.each(goal))


def once_alike(rules: type[Rules], _: type[Salting]) -> Step:
    """One more message by the reader, in two workflows that look the same to it."""
    pair = Pair(rules)
    first, reader = pair.cases[0], pair.reader
    new = first.terms.constant("message", "new")

    def mine(message: Thing) -> Truth:
        return z3.And(first.terms.relation("wrote", reader, message), first.spec.may_read(reader, message))

    before = first.all(lambda m: z3.Implies(mine(m), pair.alike(_said_once(m))), "message")
    allowed = [z3.Not(case.rules.refused(new)) for case in pair.cases]
    axioms = [axiom for case in pair.cases for axiom in case.terms.axioms()]
    said = pair.alike(lambda case: case.rules.once(new))
    return Step([*axioms, *pair.visible(), before, *allowed, mine(new)], said)


def made_once(rules: type[Rules], _: type[Salting]) -> Step:
    """One more message that has a single encoding: what E and X of it are made over, and where."""
    case = Case(rules)
    new, read = (case.terms.constant("message", name) for name in ("new", "read"))
    over = [
        case.rules.over("author", new, kind, read) == case.rules.over("audience", new, kind, read) for kind in KINDS
    ]
    there = z3.Or(*(case.rules.over("audience", new, kind, read) for kind in KINDS))
    place = case.rules.place("author", new, read) == case.rules.place("audience", new, read)
    return Step([*case.known(new), case.rules.once(new)], z3.And(*over, z3.Implies(there, place)))


def _said_once(message: Thing) -> Callable[[Case], Truth]:
    return lambda case: case.terms.relation("once", message)


def repaired_alike(rules: type[Rules], _: type[Salting]) -> Step:
    """Whether the first message of the reader's prompt is repaired there."""
    pair = Pair(rules)
    read = pair.cases[0].terms.constant("message", "read")
    axioms = [axiom for case in pair.cases for axiom in case.terms.axioms()]
    visible = pair.cases[0].spec.may_read(pair.reader, read)
    return Step([*axioms, *pair.visible(), visible], pair.alike(lambda case: case.rules.repaired(read)))


SAID: dict[str, tuple[str, Callable[[type[Rules], type[Salting]], Step]]] = {
    "made fit": (
        "If all that is in the cone of each encoding that is there is for all for whom that one was made, those who "
        "join later too, then this is so of the next encoding.",
        made_fit,
    ),
    "served fit": (
        "Then whoever reads a message through the encoding that the resolver chooses may read all that is in its cone.",
        served_fit,
    ),
    "served alike": (
        "Of two workflows that look the same to a reader: if every encoding that it may be served is the same in both, "
        "then the next one is made of the same: of the same words, for the same class, over the same encodings, in the "
        "same order, at the same places.",
        served_alike,
    ),
    "once alike": (
        "Whether a message of a reader's own has one encoding, for itself and for others, is the same in workflows "
        "that look the same to that reader, if this is so of the messages before.",
        once_alike,
    ),
    "made once": (
        "Where a message has one encoding, its author and its audience would each have had the same: over the same "
        "encodings, at the same places.",
        made_once,
    ),
    "repaired fit": ("What a caller repairs for itself is made from nothing that it may not read.", repaired_fit),
    "repaired alike": (
        "Whether what stands first in a prompt is repaired is the same in workflows that look the same to its reader.",
        repaired_alike,
    ),
    "guarded": (
        "A guard lets a call pass exactly where all that is in its cone is for all whom it is made for.",
        guarded,
    ),
    "denied": ("Under deny, whoever is not refused may read all that stands behind what it reads.", denied_fit),
    "salted": ("Whoever asks with a cache salt may read all messages of what others ask with it.", salted),
}


def theorems() -> Iterator[Theorem]:
    """All theorems."""
    for name, (says, step) in SAID.items():
        yield Theorem(name, says, step)
