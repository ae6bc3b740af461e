"""One agent that answers a question at once, without intermediate steps: the control for the other workflows."""

from __future__ import annotations

import agentcho


class Direct(agentcho.Scenario):
    """One agent answers a question at once, without steps: the control for workflows with several steps.

    Cast: sam answers. The question and the answer are for everyone. Explored: how hard is the question by itself?
    """

    name = "direct"
    tasks = "arithmetic"
    kind = agentcho.Problem

    class Outcome(agentcho.Scenario.Outcome):
        """The given answer, and the right one."""

        answer: str
        expected: str
        correct: bool

    async def play(self, game: agentcho.Game) -> Outcome:
        (problem,) = game.draw()
        sam = game.cast("responder", name="sam")
        asked = await game.announce(f"The question is: {problem.question}")
        answer = await sam.respond([asked])
        return self.Outcome(answer=answer, expected=problem.answers[0], correct=problem.right(answer))

    def score(self, outcome: Outcome) -> dict[str, float]:
        """1 for the right answer."""
        return {"correct": float(outcome.correct)}
