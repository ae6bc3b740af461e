"""A scenario made of a program's own agents, each playing by itself, for `agentcho.run(agent, ...)`."""

from __future__ import annotations

import copy

from pydantic import Field

from agentcho.agent import Agent, require_run
from agentcho.games.play.game import Game
from agentcho.scenario import Scenario


class Script(Scenario):
    """Agents that each play by their own `run`, side by side."""

    name = "script"

    class Options(Scenario.Options):
        """How the agents run side by side."""

        lockstep: bool = Field(False, description="each says one message, and goes on when each has said one")

    options: Options

    def __init__(self, agents: tuple[Agent, ...], lockstep: bool = False) -> None:
        super().__init__(lockstep=lockstep)
        require_run(agents)
        self._agents = agents

    async def play(self, game: Game) -> Scenario.Outcome:
        cast = [game.cast(copy.copy(agent)) for agent in self._agents]
        await (game.lockstep if self.options.lockstep else game.play_agents)(*cast)
        return self.Outcome()
