"""Solvers who answer the same question side by side, then again after reading each other."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from pydantic import Field

import agentcho

NAMES: tuple[str, ...] = ("ada", "ben", "cleo", "dan", "eli", "fay", "gil", "hana")
NAMES += ("ian", "joy", "kim", "leo", "mia", "noah", "olga", "pete")


class ParallelDebate(agentcho.Scenario):
    """Several solvers answer a question side by side, round by round, each reading the others' last round.

    Cast: two to sixteen solvers. Question and turns are for everyone; each solver has a private system prompt,
    or without `names` all share one. The most frequent answer of the last round is the result. Explored: does reading
    each other help?
    """

    name = "parallel-debate"
    tasks = "arithmetic"
    kind = agentcho.Problem

    class Options(agentcho.Scenario.Options):
        """The number of solvers and rounds, and what solvers read."""

        agents: int = Field(3, ge=2, le=len(NAMES), description="solvers")
        rounds: int = Field(3, ge=1, le=9, description="rounds")
        names: bool = Field(True, description="tell each its name; without: one system prompt for all")
        memory: Literal["last", "all"] = Field("last", description="the rounds before that a solver reads")

    class Outcome(agentcho.Scenario.Outcome):
        """The answer that most solvers gave, and how many were right in each round."""

        answer: str
        expected: str
        correct: bool
        right: tuple[int, ...]

    options: Options

    async def play(self, game: agentcho.Game) -> Outcome:
        (problem,) = game.draw()
        names, named = NAMES[: self.options.agents], self.options.names
        solvers = [game.cast("solver", name=name, among=True, named=named) for name in names]
        asked = await game.announce(f"The question is: {problem.question}")
        before: list[str] = []
        right: list[int] = []
        for _ in range(self.options.rounds):
            said = await game.together(*(solver.discuss(asked, before) for solver in solvers))
            last = [message.id for message in said]
            before = [*before, *last] if self.options.memory == "all" else last
            right.append(sum(problem.right(message.text) for message in said))
        answers = Counter(problem.answer_in(message.text) for message in said)
        answer = answers.most_common(1)[0][0]
        correct = problem.right(answer)
        return self.Outcome(answer=answer, expected=problem.answers[0], correct=correct, right=tuple(right))

    def score(self, outcome: Outcome) -> dict[str, float]:
        """1 for the right answer; the share of solvers right in the first and in the last round."""
        first, last = (count / self.options.agents for count in (outcome.right[0], outcome.right[-1]))
        return {"correct": float(outcome.correct), "right in the first round": first, "right in the last round": last}
