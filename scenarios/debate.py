"""A debate about a question, led by a moderator who may end it early."""

from __future__ import annotations

from pydantic import Field

import agentcho


class Debate(agentcho.Scenario):
    """Two debaters work on a question of arithmetic; a moderator ends the debate and gives the answer.

    Cast: ada argues, ben checks, mod leads. Everyone reads the question, the turns and the final answer; the
    moderator's decisions between rounds are private. Explored: does checking each other help?
    """

    name = "debate"
    tasks = "arithmetic"
    kind = agentcho.Problem

    class Options(agentcho.Scenario.Options):
        """Give your own question, or none to draw one from the task set."""

        question: str | None = Field(None, min_length=1, description="the question; none: a task for each game")
        answer: str | None = Field(None, description="the answer to your question, to score by")
        rounds: int = Field(3, ge=1, le=9, description="rounds of debate at most")

    class Outcome(agentcho.Scenario.Outcome):
        """The final answer, and how the debate went."""

        answer: str
        expected: str | None
        correct: bool | None
        rounds: int

    options: Options

    async def play(self, game: agentcho.Game) -> Outcome:
        problem = self.problem(game)
        ada = game.cast("debater", name="ada", you="ben", lead="mod", part="argue")
        ben = game.cast("debater", name="ben", you="ada", lead="mod", part="check")
        mod = game.cast("moderator", name="mod", debaters=("ada", "ben"))
        await game.announce(f"The question is: {problem.question}")
        number = 0
        for number in range(1, self.options.rounds + 1):
            await ada.argue()
            await ben.argue()
            if await mod.finished(number):
                break
        answer = await mod.conclude()
        expected = problem.answers[0] if problem.answers else None
        correct = problem.right(answer) if problem.answers else None
        return self.Outcome(answer=answer, expected=expected, correct=correct, rounds=number)

    def draws(self) -> int:
        return 0 if self.options.question else 1

    def problem(self, game: agentcho.Game) -> agentcho.Problem:
        """The question from the options, or else a task."""
        problem: agentcho.Problem
        if self.options.question is None:
            (problem,) = game.draw()
            return problem
        answers = () if self.options.answer is None else (self.options.answer,)
        return agentcho.Problem(id="own", question=self.options.question, answers=answers, check="number")

    def score(self, outcome: Outcome) -> dict[str, float]:
        """1 for the right answer, and the number of rounds."""
        right = {} if outcome.correct is None else {"correct": float(outcome.correct)}
        return right | {"rounds": float(outcome.rounds)}
