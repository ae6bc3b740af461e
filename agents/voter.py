"""Judges solutions to a question and votes for a correct one."""

from __future__ import annotations

import re
from collections.abc import Sequence

import agentcho

VOTE = re.compile(r"vote[^.\d]*solution\s*#?(\d+)", re.IGNORECASE)
NAMED = re.compile(r"solution\s*#?(\d+)", re.IGNORECASE)


class Voter(agentcho.Agent):
    """Says the answer, goes through numbered solutions, and votes for a correct one. What it says is for everyone.

    Its system prompt is open: all voters share one message.
    """

    role = "voter"
    audience = "everyone"
    open_system = True
    system = (
        "You judge solutions of a question of arithmetic. Say the answer, go through the solutions, "
        "and end with your vote for one that is right."
    )

    async def vote(self, question: str, solutions: Sequence[str]) -> int | None:
        """The number of the solution that it votes for, from 1; None if it votes for none. Reads only the messages
        `question` and `solutions`, given by id."""
        view = agentcho.View.of([self.brief, question, *solutions])
        said = await self.say(header="The answer is ", view=view)
        return chosen(said.text, len(solutions))


def chosen(text: str, count: int) -> int | None:
    """The last vote in a text, from 1 to `count`; without a vote, the only solution that the text names, if any."""
    votes, named = VOTE.findall(text), set(NAMED.findall(text))
    last = int(votes[-1] if votes else named.pop() if len(named) == 1 else 0)
    return last if 1 <= last <= count else None
