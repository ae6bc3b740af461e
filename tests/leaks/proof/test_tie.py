"""The model agrees with the code; a model that does not is detected; and a rule means the same to the solver as when it
is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
import z3

from . import broken
from .rules import KINDS, Rules
from .terms import ARGUMENTS, Finite, Symbolic, Told, Truth
from .tie import WAYS, Model, played, tied, told


def test_the_model_says_what_the_code_does_in_random_workflows() -> None:
    counts = Counter[str]()
    for seed in range(36):
        found = tied(seed)
        assert not found.differ
        counts += found.compared
    kinds = ["contexts", "cones", "places", "clearances", "classes", "labels", "repairs", "refusals", "salts"]
    assert all(counts[kind] > 50 for kind in kinds), counts


@pytest.mark.parametrize(
    "rules",
    [
        broken.AllParents,
        broken.AsAuthors,
        broken.AuthorsPlaces,
        broken.DirectlyDenied,
        broken.FirstHop,
        broken.ForAuthors,
        broken.NothingRefused,
        broken.OnAuthors,
        broken.OwnLabel,
        broken.RepairedByHidden,
        broken.Roster,
        broken.WhereClean,
    ],
    ids=lambda rules: rules.__name__,
)
def test_a_model_of_other_rules_is_told_from_the_code(rules: type[Rules]) -> None:
    assert any(tied(seed, rules=rules).differ for seed in range(40))


class Ground:
    """A play as the solver sees it: as many distinct things as it has, and everything that holds for them."""

    def __init__(self, said: dict[str, Told], agents: list[str]) -> None:
        self.terms, self._said = Symbolic(), said
        whole = Finite(said, frozenset(agents))
        audiences = {whole.attribute(name, id) for id in said for name in ("audience", "own")}
        self.things = {
            "agent": {agent: self.terms.constant("agent", agent) for agent in agents},
            "message": {id: self.terms.constant("message", id) for id in said},
            "audience": {each: self.terms.constant("audience", f"to {each}") for each in audiences},
        }
        self.facts = [*self._distinct(), *self._relations(whole), *self._attributes(whole)]

    def _distinct(self) -> Iterator[Truth]:
        for sort, things in self.things.items():
            if sort == "audience":
                yield z3.Distinct(*things.values())
                continue
            yield z3.Distinct(*things.values())
            some = z3.FreshConst(next(iter(things.values())).sort())
            yield z3.ForAll([some], z3.Or(*(some == thing for thing in things.values())))

    def _relations(self, whole: Finite) -> Iterator[Truth]:
        for name, sorts in ARGUMENTS.items():
            rows: list[tuple[object, ...]] = [()]
            for sort in sorts:
                rows = [(*row, thing) for row in rows for thing in self.things[sort]]
            for row in rows:
                terms = (self.things[sort][thing] for sort, thing in zip(sorts, row, strict=True))
                yield self.terms.relation(name, *terms) == whole.relation(name, *row)

    def _attributes(self, whole: Finite) -> Iterator[Truth]:
        for id, message in self.things["message"].items():
            for name in ("audience", "own"):
                yield self.terms.attribute(name, message) == self.things["audience"][whole.attribute(name, id)]


def _asked(rules: Rules, one: object, other: object) -> list[Truth]:
    """The results of every rule about two messages."""
    over = [rules.over(kind, one, below, other) for kind in KINDS for below in KINDS]
    serves = [rules.serves(kind, one, other) for kind in KINDS]
    cone = rules.in_cone("author", one, other, lambda kind, read, far: rules.over(kind, read, "audience", far))
    return [*over, *serves, cone, rules.public(one, other), rules.refused(one), rules.repaired(one)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_rule_is_to_the_solver_what_it_is_when_it_is_computed(seed: int) -> None:
    said = told(played(Random(seed), 3, WAYS[0]))
    model, ground = Model(said), Ground(said, ["ann", "bob", "cid"])
    solver, rules = z3.Solver(), Rules(ground.terms)
    solver.add(*ground.facts)
    assert solver.check() == z3.sat
    pairs = [(one, other) for one in said for other in said]
    computed = [value for one, other in pairs for value in _asked(model.rules, one, other)]
    things = ground.things["message"]
    formulas = [truth for one, other in pairs for truth in _asked(rules, things[one], things[other])]
    assert {True, False} == set(computed)
    solver.add(z3.Not(z3.And(*(f == bool(value) for f, value in zip(formulas, computed, strict=True)))))
    assert solver.check() == z3.unsat
