"""Answers numbered questions in one message, one line per question."""

from __future__ import annotations

import re
from collections.abc import Sequence

import agentcho

LINE = re.compile(r"^\s*(\d+)\s*[:.)]\s*(.*?)\s*$", re.MULTILINE)


class Answerer(agentcho.Agent):
    """Reads all questions and answers them in one message. Its answer is for everyone.

    `side_by_side` True: all questions begin at the same position, right after the system prompt, and the answer begins
    after the rightmost of their tokens. False: the questions stand one after another.
    """

    role = "answerer"
    audience = "everyone"
    system = (
        "You answer every question that you are asked, in the order of their numbers, each on a line of its own, "
        "with its number and a short answer."
    )
    side_by_side: bool = True

    def view(self, readable: Sequence[agentcho.Metadata]) -> agentcho.View:
        """The system prompt, then the questions."""
        first, *questions = super().view(readable).reads
        if not self.side_by_side:
            return agentcho.View((first, *questions))
        placed = (agentcho.Read(read.id, agentcho.After(first.id)) for read in questions)
        return agentcho.View((first, *placed), "rightmost")

    async def answer_all(self, count: int) -> tuple[str, ...]:
        """The answers to questions 1 to `count`; an answer is empty if its number has no line."""
        said = await self.say()
        lines = dict(LINE.findall(said.text))
        return tuple(lines.get(str(number), "") for number in range(1, count + 1))
