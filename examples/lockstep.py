"""Two agents plan in private before they speak. In lockstep, the order of messages does not reveal a plan's length."""

from __future__ import annotations

import agentcho


class Planner(agentcho.Agent):
    audience = "everyone"

    async def run(self) -> None:
        for _ in range(2):
            await self.think("What will you say?", max_tokens=40)
            await self.say(max_tokens=20)


class Meeting(agentcho.Scenario):
    """Two planners meet."""

    class Outcome(agentcho.Scenario.Outcome):
        order: tuple[str, ...]

    async def play(self, game: agentcho.Game) -> Outcome:
        await game.lockstep(game.cast(Planner, "ann"), game.cast(Planner, "bob"))
        return self.Outcome(order=tuple(m.author for m in game.said if m.author and m.audience.members is None))
