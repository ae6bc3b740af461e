"""Judges solutions of a question and votes for one that is right."""

from __future__ import annotations

import re
from collections.abc import Sequence

import agentcho

VOTE = re.compile(r"solution\s*#?(\d+)", re.IGNORECASE)


class Voter(agentcho.Agent):
    """Says the answer, and which of several numbered solutions is right. Its vote is for everyone."""

    role = "voter"
    audience = "everyone"
    system = "You judge solutions of a question of arithmetic. Say the answer and which solution is right."

    async def vote(self, question: str, solutions: Sequence[str]) -> int | None:
        """The number of the solution that it holds for right, from 1; None where it names none of them. Reads the
        question and the solutions alone: messages by id."""
        view = agentcho.View.of([f"{self.name}.0", question, *solutions])
        said = await self.say(header="The answer is ", view=view)
        named = [int(number) for number in VOTE.findall(said.text)]
        return next((number for number in named if 1 <= number <= len(solutions)), None)
