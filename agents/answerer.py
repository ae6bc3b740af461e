"""Answers numbered questions in one message, each on a line of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence

import agentcho

LINE = re.compile(r"^\s*(\d+)\s*[:.)]\s*(.*?)\s*$", re.MULTILINE)


class Answerer(agentcho.Agent):
    """Reads questions and answers them all at once. What it says is for everyone.

    `side_by_side` True: the questions begin at one position, right after its system prompt, and its answer begins
    after the rightmost of their tokens. False: they stand one after another.
    """

    role = "answerer"
    audience = "everyone"
    system = (
        "You answer every question that you are asked, in the order of their numbers, each on a line of its own, "
        "with its number and a short answer."
    )
    side_by_side: bool = True

    def view(self, readable: Sequence[agentcho.Metadata]) -> agentcho.View:
        """Its system prompt, then the questions."""
        first, *questions = super().view(readable).reads
        if not self.side_by_side:
            return agentcho.View((first, *questions))
        placed = (agentcho.Read(read.id, agentcho.After(first.id)) for read in questions)
        return agentcho.View((first, *placed), "rightmost")

    async def answer_all(self, count: int) -> tuple[str, ...]:
        """The answers to questions 1 to `count`; empty where a number has no line."""
        said = await self.say()
        lines = dict(LINE.findall(said.text))
        return tuple(lines.get(str(number), "") for number in range(1, count + 1))
