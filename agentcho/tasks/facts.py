"""Draws questions about facts that need no context: capitals, opposites, colors, and the like.

Does not know: who is asked.
"""

from __future__ import annotations

import random
from functools import cache
from typing import NamedTuple

from agentcho.tasks.listed import lists
from agentcho.tasks.task import Problem


class Fact(NamedTuple):
    """What is asked about, the answer and what else is right, and of which kind it is."""

    kind: str
    about: str
    answer: str
    others: tuple[str, ...]


@cache
def facts() -> tuple[Fact, ...]:
    """All facts there are."""
    found = lists("facts")
    kinds = [kind for kind in found if not kind.endswith(".ask")]
    return tuple(_fact(kind, line) for kind in kinds for line in found[kind])


def _fact(kind: str, line: str) -> Fact:
    about, answers = line.split(" = ")
    answer, *others = answers.split(", ")
    return Fact(kind, about, answer, tuple(others))


def draw_fact(dice: random.Random, id: str) -> Problem:
    """One of the facts, in one of the wordings of its kind."""
    fact = dice.choice(facts())
    question = dice.choice(lists("facts")[f"{fact.kind}.ask"]).format(a=fact.about)
    return Problem(id=id, question=question, answers=(fact.answer, *fact.others))
