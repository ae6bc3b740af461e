"""Draws questions about facts that need no context: capitals, opposites, colors, and the like.

The facts are divided into two halves, so that nothing that one half asks about is in a question of the other.
"""

from __future__ import annotations

import hashlib
import random
from functools import cache
from typing import NamedTuple

from agentcho.tasks.task import ARTICLE, Problem
from agentcho.tasks.word_lists import lists


class Fact(NamedTuple):
    """The subject, the answer and other right answers, and the kind of fact."""

    kind: str
    about: str
    answer: str
    others: tuple[str, ...]

    @property
    def entity(self) -> str:
        """The name of the subject, without its article: "a dog" and "dog" are one."""
        return _entity(self.about)

    @property
    def named(self) -> frozenset[str]:
        """The entities of the subject and of all right answers."""
        return frozenset({self.entity, *map(_entity, (self.answer, *self.others))})


def _entity(words: str) -> str:
    return ARTICLE.sub("", words.casefold())


@cache
def facts() -> tuple[Fact, ...]:
    """All facts."""
    found = lists("facts")
    kinds = [kind for kind in found if not kind.endswith(".ask")]
    return tuple(_fact(kind, line) for kind in kinds for line in found[kind])


def _fact(kind: str, line: str) -> Fact:
    about, answers = line.split(" = ")
    answer, *others = answers.split(", ")
    return Fact(kind, about, answer, tuple(others))


@cache
def half_of_facts(half: int) -> tuple[Fact, ...]:
    """The facts of half 1 or 2. Facts about the same entity are in one half, together with those that ask about their
    answers (the days of the week, a verb and its opposite). The half depends only on the names."""
    groups = _groups()
    return tuple(fact for fact in facts() if _side(groups[fact.entity]) == half)


def _side(group: str) -> int:
    return 1 + hashlib.sha256(f"half/{group}".encode()).digest()[0] % 2


def _groups() -> dict[str, str]:
    """For each entity that is asked about, the first name in its group."""
    group = {fact.entity: fact.entity for fact in facts()}
    for fact in facts():
        joined = {group[name] for name in fact.named & group.keys()}
        first = min(joined)
        group = {name: first if own in joined else own for name, own in group.items()}
    return group


def draw_fact(dice: random.Random, id: str, half: int | None = None) -> Problem:
    """One of the facts, or of one half of them (1 or 2), in one of the wordings of its kind."""
    fact = dice.choice(facts() if half is None else half_of_facts(half))
    question = dice.choice(lists("facts")[f"{fact.kind}.ask"]).format(a=fact.about)
    return Problem(id=id, question=question, answers=(fact.answer, *fact.others))
