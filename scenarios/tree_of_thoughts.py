"""Solutions side by side, votes on which is best, and a final answer from the winner."""

from __future__ import annotations

from collections import Counter

from pydantic import Field

import agentcho


class TreeOfThoughts(agentcho.Scenario):
    """Solvers propose solutions side by side, voters choose the best one, and a finisher answers from it.

    Cast: solver-1 to solver-b, voter-1 to voter-v, finisher. Question, solutions, votes and answer are for everyone, as
    are the system prompts of solvers and voters, each encoded once. Voters read all solutions, the finisher only the
    winner (a voter who chooses none counts for the first). Explored: do votes find the right solutions?
    """

    name = "tree-of-thoughts"
    tasks = "arithmetic"
    kind = agentcho.Problem

    class Options(agentcho.Scenario.Options):
        """The width of the tree."""

        branches: int = Field(8, ge=1, le=64, description="solutions")
        voters: int = Field(4, ge=1, le=64, description="votes")

    class Outcome(agentcho.Scenario.Outcome):
        """Which solutions are right, the votes (from 1; None: no solution), and the final answer."""

        right: tuple[bool, ...]
        votes: tuple[int | None, ...]
        answer: str
        expected: str
        correct: bool

    options: Options

    async def play(self, game: agentcho.Game) -> Outcome:
        (problem,) = game.draw()
        numbers = range(1, self.options.branches + 1)
        solvers = [game.cast("solver", name=f"solver-{number}") for number in numbers]
        voters = [game.cast("voter", name=f"voter-{number}") for number in range(1, self.options.voters + 1)]
        finisher = game.cast("responder", name="finisher", helped=True)
        asked = await game.announce(f"The question is: {problem.question}")
        solutions = await game.together(*(each.propose(number) for each, number in zip(solvers, numbers, strict=True)))
        ids = [solution.id for solution in solutions]
        votes = await game.together(*(voter.vote(asked, ids) for voter in voters))
        winner = Counter(sorted(vote or 1 for vote in votes)).most_common(1)[0][0]
        answer = await finisher.respond([asked, ids[winner - 1]], temperature=0)
        right = tuple(problem.right(solution.text) for solution in solutions)
        correct = problem.right(answer)
        return self.Outcome(
            right=right, votes=tuple(votes), answer=answer, expected=problem.answers[0], correct=correct
        )

    def score(self, outcome: Outcome) -> dict[str, float]:
        """1 for the right answer; the share of right solutions, and of votes for right solutions."""
        good = [vote is not None and outcome.right[vote - 1] for vote in outcome.votes]
        shares = {"solutions right": sum(outcome.right) / len(outcome.right), "votes right": sum(good) / len(good)}
        return {"correct": float(outcome.correct)} | shares
