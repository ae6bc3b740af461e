"""Three solvers race: the answer of the first to finish counts, and the others stop.

Longer answers are more often wrong, so the first to finish is a good guess (First Finish Search).
"""

from __future__ import annotations

import agentcho


class Solver(agentcho.Agent):
    role = "solver"
    audience = "everyone"


class Race(agentcho.Scenario):
    """The first solver to finish answers for all."""

    class Outcome(agentcho.Scenario.Outcome):
        winner: str
        answer: str

    async def play(self, game: agentcho.Game) -> Outcome:
        solvers = [game.cast(Solver, name) for name in ("ann", "bob", "carol")]
        await game.announce("What is 7 + 5? Think, then answer.")
        first = await game.first(*(solver.say(max_tokens=40) for solver in solvers))
        return self.Outcome(winner=first.author, answer=first.text)
