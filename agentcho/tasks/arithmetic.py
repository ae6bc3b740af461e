"""Draws small arithmetic word problems with their steps; every number in them is between 0 and 99."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

from agentcho.tasks.task import Problem
from agentcho.tasks.word_lists import lists


class Step(NamedTuple):
    """One operation: left, sign ("+", "-" or "x") and right, such as 5 + 7."""

    left: int
    sign: str
    right: int

    @property
    def result(self) -> int:
        """The value of the operation."""
        return {"+": self.left + self.right, "-": self.left - self.right, "x": self.left * self.right}[self.sign]

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right} = {self.result}"


class Story(NamedTuple):
    """A question in words, with the operations that answer it; `things` is what is counted."""

    question: str
    steps: tuple[Step, ...]
    things: str

    @property
    def answer(self) -> int:
        """The result of the last step."""
        return self.steps[-1].result


def draw_problem(dice: random.Random, id: str, steps: int = 3) -> Problem:
    """A story as a task, checked by its number."""
    story = draw_story(dice, steps)
    return Problem(id=id, question=story.question, answers=(str(story.answer),), check="number")


def draw_story(dice: random.Random, steps: int = 3) -> Story:
    """A story with exactly `steps` steps (1 or more): an initial number or some groups, then changes."""
    words = lists("arithmetic")
    name, other = dice.sample(words["names"], 2)
    slots = {"name": name, "other": other, "things": dice.choice(words["things"]), "boxes": dice.choice(words["boxes"])}
    sums: list[Step] = []
    if dice.random() < 0.2:
        sums.append(Step(dice.randint(2, 9), "x", dice.randint(2, 9)))
        parts = [dice.choice(words["groups"]).format(n=sums[0].left, m=sums[0].right, **slots)]
    else:
        parts = [dice.choice(words["start"]).format(n=(start := dice.randint(2, 60)), **slots)]
    while len(sums) < steps:
        sums.append(_change(dice, sums[-1].result if sums else start))
        parts.append(_tell(dice, sums[-1], slots))
    parts.append(dice.choice(words["ask"]).format(**slots))
    return Story(" ".join(parts), tuple(sums), slots["things"])


def _change(dice: random.Random, value: int) -> Step:
    """A step from `value` whose result is between 0 and 99."""
    if 2 <= value <= 33 and dice.random() < 0.08:
        return Step(value, "x", dice.choice((2, 3)))
    if value > 85 or (value >= 3 and dice.random() < 0.5):
        return Step(value, "-", dice.randint(1, min(value, 30)))
    return Step(value, "+", dice.randint(1, min(99 - value, 30)))


def _tell(dice: random.Random, step: Step, slots: Mapping[str, str]) -> str:
    """A step in words."""
    words = lists("arithmetic")
    frames = {"+": words["more"], "-": words["less"], "x": words["times"]}[step.sign]
    opening = dice.choice(words["openings"]).format(**slots)
    return dice.choice(frames).format(n=step.right, Then=opening, **slots)
