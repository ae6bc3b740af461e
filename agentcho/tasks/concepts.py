"""Draws everyday words that a text must use."""

from __future__ import annotations

import random
from functools import cache

from agentcho.tasks.task import Concepts
from agentcho.tasks.word_lists import lists


@cache
def nouns() -> frozenset[str]:
    """The words that are nouns; the others are verbs."""
    return frozenset(lists("concepts")["nouns"])


def draw_concepts(dice: random.Random, id: str, size: int = 8) -> Concepts:
    """`size` different words in random order."""
    found = lists("concepts")
    every = tuple(dict.fromkeys((*found["nouns"], *found["verbs"])))
    return Concepts(id=id, words=tuple(dice.sample(every, size)))
