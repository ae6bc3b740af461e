"""Solvers who answer the same question side by side, and again after reading each other."""

from __future__ import annotations

from collections import Counter

from pydantic import Field

import agentcho

NAMES: tuple[str, ...] = ("ada", "ben", "cleo", "dan", "eli", "fay", "gil", "hana")
NAMES += ("ian", "joy", "kim", "leo", "mia", "noah", "olga", "pete")


class ParallelDebate(agentcho.Scenario):
    """Several solvers answer a question side by side, round by round, each reading the others' last round.

    Cast: two to sixteen solvers. Question and turns are for everyone; system prompts are each solver's own. The
    answer that most give in the last round is the answer. Explored: does reading each other help?
    """

    name = "parallel-debate"
    tasks = "arithmetic"
    kind = agentcho.Problem

    class Options(agentcho.Scenario.Options):
        """How many solvers, and for how long."""

        agents: int = Field(3, ge=2, le=len(NAMES), description="solvers")
        rounds: int = Field(3, ge=1, le=9, description="rounds")

    class Outcome(agentcho.Scenario.Outcome):
        """The answer that most solvers gave, and how many were right in each round."""

        answer: str
        expected: str
        correct: bool
        right: tuple[int, ...]

    options: Options

    async def play(self, game: agentcho.Game) -> Outcome:
        (problem,) = game.draw()
        solvers = [game.cast("solver", name=name, among=True) for name in NAMES[: self.options.agents]]
        asked = await game.announce(f"The question is: {problem.question}")
        said: list[agentcho.Message] = []
        right: list[int] = []
        for _ in range(self.options.rounds):
            last = [message.id for message in said]
            said = await game.together(*(solver.discuss(asked, last) for solver in solvers))
            right.append(sum(problem.right(message.text) for message in said))
        answers = Counter(problem.answer_in(message.text) for message in said)
        answer = answers.most_common(1)[0][0]
        correct = problem.right(answer)
        return self.Outcome(answer=answer, expected=problem.answers[0], correct=correct, right=tuple(right))

    def score(self, outcome: Outcome) -> dict[str, float]:
        """1 for the right answer; the share of solvers right in the first and in the last round."""
        first, last = (count / self.options.agents for count in (outcome.right[0], outcome.right[-1]))
        return {"correct": float(outcome.correct), "right in the first round": first, "right in the last round": last}
