"""Questions that are encoded separately, and one answer to all of them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

import agentcho


class MultiQA(agentcho.Scenario):
    """Several questions, encoded separately, and one message that answers them all.

    Cast: ann answers. The questions are for everyone; her system prompt is private. Explored: can one message
    attend to separately encoded questions, placed side by side (parallel) or one after another (serial)?
    """

    name = "multi-qa"
    tasks = "facts"
    kind = agentcho.Problem

    class Options(agentcho.Scenario.Options):
        """The number of questions, and their positions."""

        n: int = Field(2, ge=1, le=9, description="questions a game")
        layout: Literal["parallel", "serial"] = Field("parallel", description="where questions stand for who answers")

    class Outcome(agentcho.Scenario.Outcome):
        """The answer to each question, and whether it is right."""

        answers: tuple[str, ...]
        right: tuple[bool, ...]

    options: Options

    def draws(self) -> int:
        return self.options.n

    async def play(self, game: agentcho.Game) -> Outcome:
        problems = game.draw(self.options.n)
        ann = game.cast("answerer", name="ann", side_by_side=self.options.layout == "parallel")
        for number, problem in enumerate(problems, 1):
            await game.announce(f"Question {number}: {problem.question}")
        answers = await ann.answer_all(len(problems))
        right = tuple(problem.right(said) for problem, said in zip(problems, answers, strict=True))
        return self.Outcome(answers=answers, right=right)

    def score(self, outcome: Outcome) -> dict[str, float]:
        """1 if all answers are right; the same for only the first, and for only the last."""
        first, last = outcome.right[0], outcome.right[-1]
        return {"all right": float(all(outcome.right)), "first right": float(first), "last right": float(last)}
