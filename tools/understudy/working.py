"""Solves a story in words, sometimes with a slip."""

from __future__ import annotations

from typing import NamedTuple

from agentcho.tasks.arithmetic import Step, Story

from .grammar import Writer


class Working(NamedTuple):
    """The sums in words, and their result. `slip`: the result is wrong because of a slip in one sum."""

    sums: str
    answer: int
    slip: bool


def work(writer: Writer, story: Story, slip: bool = False) -> Working:
    """All sums of a story. With a slip, one result is slightly wrong, and the following sums use it."""
    wrong_at = writer.random.randrange(len(story.steps)) if slip else -1
    value, sums = story.steps[0].left, list[str]()
    for place, step in enumerate(story.steps):
        now = Step(value, step.sign, step.right)
        value = off(writer, now.result) if place == wrong_at else now.result
        sums.append(f"{now.left} {now.sign} {now.right} = {value}.")
    return Working(" ".join(sums), value, value != story.answer)


def off(writer: Writer, value: int) -> int:
    """A wrong number near the right one."""
    return abs(value + writer.random.choice((1, -1, 2, -2, 10, -10, 3))) if value > 2 else value + 1
