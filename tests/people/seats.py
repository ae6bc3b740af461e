"""A scenario whose players have secrets from each other: each word that is for one of them alone names it."""

from __future__ import annotations

import agentcho


class Seats(agentcho.Scenario):
    """Alice and Bob think, tell Carol what the other may not know, and speak; Carol answers."""

    name = "seats"

    class Options(agentcho.Scenario.Options):
        """How often they go round."""

        rounds: int = 1

    class Outcome(agentcho.Scenario.Outcome):
        """What was said last."""

        last: str

    options: Options

    async def play(self, game: agentcho.Game) -> Outcome:
        players = [
            game.cast(agentcho.Agent, name=name, system=f"for-{name}-system", audience="everyone")
            for name in ("alice", "bob")
        ]
        carol = game.cast(agentcho.Agent, name="carol", system="for-carol-system")
        said = ""
        for _ in range(self.options.rounds):
            for player in players:
                await game.announce(f"for-{player.name}-news", to=(player.name,))
                await player.think("What now?")
                await player.say(to=("carol",), max_tokens=60)
                await carol.tell(f"for-{player.name}-answer", to=player.name)
                said = (await player.say(max_tokens=60)).text
        return self.Outcome(last=said)
