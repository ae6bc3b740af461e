"""A debate over a small question of arithmetic, led by a moderator who may end it early."""

from __future__ import annotations

import random
from typing import Literal, NamedTuple

from pydantic import Field

import agentcho

NAMES = ("Tom", "Mia", "Max", "Nora", "Emma", "Clara")
THINGS = ("apples", "books", "coins", "marbles", "cards", "shells", "stamps", "buttons")


class Question(NamedTuple):
    """A question and its answer; None: not known."""

    text: str
    answer: int | None


class Debate(agentcho.Scenario):
    """Two debaters work at a question of arithmetic; a moderator ends the debate and gives the answer.

    Cast: ada argues, ben checks, mod leads. Everyone reads the question, the turns and the final answer; the
    verdicts between rounds are the moderator's alone. Explored: does checking each other help?
    """

    name = "debate"

    class Options(agentcho.Scenario.Options):
        """Give a question of your own, or none for a fresh one a game."""

        question: str | None = Field(None, min_length=1, description="the question; none: a new one for each game")
        answer: int | None = Field(None, description="the answer to your question, to score by")
        rounds: Literal[1, 2, 3] = Field(3, description="rounds of debate at most")

    class Outcome(agentcho.Scenario.Outcome):
        """The final answer, and how the debate went."""

        answer: int
        expected: int | None
        correct: bool | None
        rounds: int

    options: Options

    async def play(self, game: agentcho.Game) -> Outcome:
        question = self.question(random.Random(game.seed))
        ada = game.cast("debater", name="ada", you="ben", lead="mod", brief="argue")
        ben = game.cast("debater", name="ben", you="ada", lead="mod", brief="check")
        mod = game.cast("moderator", name="mod", debaters=("ada", "ben"))
        await game.announce(f"The question is: {question.text}")
        number = 0
        for number in range(1, self.options.rounds + 1):
            await ada.argue()
            await ben.argue()
            if await mod.finished(number):
                break
        answer = await mod.conclude()
        correct = None if question.answer is None else answer == question.answer
        return self.Outcome(answer=answer, expected=question.answer, correct=correct, rounds=number)

    def question(self, dice: random.Random) -> Question:
        """The question of the options, or a fresh one with a result from 0 to 99."""
        if self.options.question is not None:
            return Question(self.options.question, self.options.answer)
        name, things = dice.choice(NAMES), dice.choice(THINGS)
        has, more = dice.randint(2, 15), dice.randint(2, 15)
        less = dice.randint(1, has + more - 1)
        text = (
            f"{name} has {has} {things}. Then {name} buys {more} more {things}. Then {name} loses {less} {things}. "
            f"How many {things} does {name} have now?"
        )
        return Question(text, has + more - less)

    def score(self, outcome: Outcome) -> dict[str, float]:
        """1 for the right answer, and the rounds it took."""
        right = {} if outcome.correct is None else {"correct": float(outcome.correct)}
        return right | {"rounds": float(outcome.rounds)}
