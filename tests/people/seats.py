"""A scenario whose players have secrets from each other: each private word names the player it is for."""

from __future__ import annotations

import agentcho


class Seats(agentcho.Scenario):
    """Alice and Bob think, tell Carol something that the other may not know, and speak; Carol answers."""

    name = "seats"

    class Options(agentcho.Scenario.Options):
        """The number of rounds."""

        rounds: int = 1

    class Outcome(agentcho.Scenario.Outcome):
        """The last message."""

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
