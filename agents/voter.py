"""Judges solutions of a question and votes for the best one."""

from __future__ import annotations

from collections.abc import Sequence

import agentcho


class Voter(agentcho.Agent):
    """Votes for one of several numbered solutions. Its vote is for everyone."""

    role = "voter"
    audience = "everyone"
    system = "You judge solutions of a question of arithmetic. Say which solution is right."

    async def vote(self, question: str, solutions: Sequence[str]) -> int:
        """The number of the solution that it holds for right, from 1. Reads the question and the solutions alone:
        messages by id."""
        numbers = [str(number) for number in range(1, len(solutions) + 1)]
        view = agentcho.View.of([f"{self.name}.0", question, *solutions])
        return int(await self.choose(numbers, to="everyone", header="Best solution: ", view=view))
