"""A jury: each juror forms an opinion alone, all speak in turn, then vote together, until they agree or time is up.

agentcho run examples/jury.py --model smollm2
"""

from __future__ import annotations

from collections import Counter

import agentcho

CASE = "A baker is accused of selling old bread as fresh. Two customers say so; the delivery slip is of that morning."
LEANINGS = (
    "You trust witnesses.",
    "You trust papers.",
    "You doubt everybody.",
    "You want to go home.",
    "You are fair.",
)


class Jury(agentcho.Scenario):
    """Five jurors with different leanings."""

    name = "jury"

    class Options(agentcho.Scenario.Options):
        """The maximum number of rounds."""

        rounds: int = 2

    class Outcome(agentcho.Scenario.Outcome):
        """The votes of the last round, and whether they were unanimous."""

        votes: dict[str, int]
        unanimous: bool

    options: Options

    async def play(self, game: agentcho.Game) -> Outcome:
        jurors = [
            game.cast(agentcho.Agent, f"juror-{number}", role="juror", audience="everyone", system=leaning)
            for number, leaning in enumerate(LEANINGS, 1)
        ]
        await game.announce(CASE)
        votes = Counter[str]()
        for _ in range(self.options.rounds):
            await game.together(*(juror.think("What speaks for which side?", max_tokens=40) for juror in jurors))
            for juror in jurors:
                await juror.say(max_tokens=40)
            ballots = (juror.choose(("guilty", "not guilty"), "Your vote?", to="everyone") for juror in jurors)
            votes = Counter(await game.together(*ballots))
            if len(votes) == 1:
                break
        return self.Outcome(votes=dict(votes), unanimous=len(votes) == 1)

    def score(self, outcome: Outcome) -> dict[str, float]:
        """Whether they agreed."""
        return {"unanimous": float(outcome.unanimous)}
