"""Writes small arithmetic stories and their steps. Knows no debate; every result lies between 0 and 99."""

from __future__ import annotations

from typing import NamedTuple

from .grammar import Writer, pronoun
from .wordings import rules


class Step(NamedTuple):
    """One sum: left, sign and right, such as 5 + 7."""

    left: int
    sign: str
    right: int

    @property
    def result(self) -> int:
        """The value of the sum."""
        return {"+": self.left + self.right, "-": self.left - self.right, "x": self.left * self.right}[self.sign]

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right} = {self.result}"


class Story(NamedTuple):
    """A question in words, with the sums that answer it; `things` is what is counted."""

    question: str
    steps: tuple[Step, ...]
    things: str

    @property
    def answer(self) -> int:
        """The result of the last step."""
        return self.steps[-1].result


def draw_story(writer: Writer) -> Story:
    """A story of one to three steps."""
    name = writer.name()
    slots = {
        "name": name,
        "other": writer.name(name),
        "things": writer.pick(rules("stories")["things"]),
        "boxes": writer.pick(rules("stories")["boxes"]),
    }
    if writer.chance(0.12):
        return total(writer, slots)
    if writer.chance(0.12):
        return cost(writer, slots)
    return chain(writer, slots)


def total(writer: Writer, slots: dict[str, str]) -> Story:
    """One has some, another has more: how many together."""
    n, m = writer.random.randint(2, 30), writer.random.randint(2, 20)
    question = writer.pick(rules("stories")["total"]).format(n=n, m=m, **slots)
    return Story(question, (Step(n, "+", m), Step(n, "+", n + m)), slots["things"])


def cost(writer: Writer, slots: dict[str, str]) -> Story:
    """So many at so much each."""
    n, m = writer.random.randint(2, 9), writer.random.randint(2, 9)
    return Story(writer.pick(rules("stories")["cost"]).format(n=n, m=m, **slots), (Step(n, "x", m),), "coins")


def chain(writer: Writer, slots: dict[str, str]) -> Story:
    """A start, or some groups, and one to three changes."""
    steps: list[Step] = []
    if writer.chance(0.25):
        steps.append(Step(writer.random.randint(2, 9), "x", writer.random.randint(2, 9)))
        parts = [writer.pick(rules("stories")["groups"]).format(n=steps[0].left, m=steps[0].right, **slots)]
        value = steps[0].result
    else:
        value = writer.random.randint(2, 20 if writer.chance(0.6) else 60)
        parts = [writer.pick(rules("stories")["start"]).format(n=value, **slots)]
    for _ in range(writer.random.choice((1, 2, 2, 2, 3)) - len(steps)):
        step = draw_step(writer, value)
        parts.append(tell(writer, step, slots))
        steps.append(step)
        value = step.result
    parts.append(writer.pick(rules("stories")["ask"]).format(**slots))
    return Story(" ".join(parts), tuple(steps), slots["things"])


def draw_step(writer: Writer, value: int) -> Step:
    """A change that keeps the number between 0 and 99."""
    if writer.chance(0.08) and 2 <= value <= 33:
        return Step(value, "x", writer.random.choice((2, 3)))
    if value >= 3 and (writer.chance(0.5) or value > 80):
        return Step(value, "-", writer.random.randint(1, min(value, 30 if writer.chance(0.3) else 12)))
    return Step(value, "+", writer.random.randint(1, min(99 - value, 30 if writer.chance(0.3) else 12)))


def tell(writer: Writer, step: Step, slots: dict[str, str]) -> str:
    """One change in words."""
    who = pronoun(slots["name"])
    start = writer.random.choice(("Then {name}", "{name}", "Then {who}", "{Who}", "Later {name}"))
    if who == "they":
        start = start.replace("{who}", "{name}").replace("{Who}", "{name}")
    then = start.format(who=who, Who=who.capitalize(), **slots)
    options = {"+": rules("stories")["more"], "-": rules("stories")["less"], "x": rules("stories")["times"]}[step.sign]
    return writer.pick(options).format(n=step.right, Then=then, **slots)
