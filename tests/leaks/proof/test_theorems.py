"""Every step is proved, for workflows of any size, and refuted without one of its rules."""

from __future__ import annotations

import pytest
import z3

from .broken import BROKEN, Broken
from .rules import Rules, Salting
from .theorems import Theorem, prove, theorems

ALL = {theorem.name: theorem for theorem in theorems()}


@pytest.mark.parametrize("theorem", ALL.values(), ids=ALL)
def test_a_step_is_proved(theorem: Theorem) -> None:
    assert prove(theorem).answer == "proved"


@pytest.mark.parametrize("theorem", ALL.values(), ids=ALL)
def test_there_are_workflows_that_it_speaks_of(theorem: Theorem) -> None:
    """A step whose premises hold for no workflow would say nothing."""
    step, solver = theorem.step(Rules, Salting), z3.Solver()
    solver.add(*step.premises, step.goal)
    assert solver.check() == z3.sat


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: f"{broken.refuted}: {broken.name}")
@pytest.mark.slow
def test_without_one_of_its_rules_it_is_refuted(broken: Broken) -> None:
    verdict = prove(ALL[broken.refuted], broken.rules, broken.salting)
    assert verdict.answer == "refuted"
    assert verdict.shown


def test_each_step_is_refuted_by_something() -> None:
    assert {broken.refuted for broken in BROKEN} == set(ALL)
