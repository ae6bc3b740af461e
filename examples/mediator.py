"""A negotiation with a mediator: each side tells the mediator its limit in confidence, and the mediator proposes.

agentcho run examples/mediator.py --model smollm2
"""

from __future__ import annotations

import agentcho

LIMITS = {"seller": "at least 40", "buyer": "at most 60"}


class Mediation(agentcho.Scenario):
    """Two sides who keep their limits from each other, and a mediator who knows both."""

    name = "mediation"

    class Options(agentcho.Scenario.Options):
        """The maximum number of proposals."""

        rounds: int = 2

    class Outcome(agentcho.Scenario.Outcome):
        """Whether both accepted a proposal, and in which round."""

        accepted: bool
        rounds: int

    options: Options

    async def play(self, game: agentcho.Game) -> Outcome:
        mediator = game.cast(
            agentcho.Agent, "mediator", audience="everyone", system="You mediate. Never repeat a limit you were told."
        )
        sides = [
            game.cast(agentcho.Agent, name, system=f"You are the {name} of a lamp and agree to {limit} points.")
            for name, limit in LIMITS.items()
        ]
        await game.announce("Find a price for the lamp.")
        await game.together(
            *(side.say(to="mediator", prompt="Tell the mediator your limit.", max_tokens=30) for side in sides)
        )
        for number in range(1, self.options.rounds + 1):
            await mediator.say(prompt="Propose a price to both.", max_tokens=40)
            answers = await game.together(
                *(side.choose(("accept", "refuse"), "Do you accept?", to="everyone") for side in sides)
            )
            if answers == ["accept", "accept"]:
                return self.Outcome(accepted=True, rounds=number)
        return self.Outcome(accepted=False, rounds=self.options.rounds)

    def score(self, outcome: Outcome) -> dict[str, float]:
        """Whether both sides accepted."""
        return {"deal": float(outcome.accepted)}
