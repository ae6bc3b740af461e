"""`agentcho.run`: agents of a script, each running by itself, on one shared cache, with a transcript to watch.

Does not know: the command line.
"""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

from agentcho.agent import Agent
from agentcho.calls.call import EnginePort
from agentcho.cli.play import play_shown
from agentcho.config import RunConfig
from agentcho.display import Kind
from agentcho.games.game import Game
from agentcho.games.models import Engines
from agentcho.games.runtime import RunResult, play
from agentcho.scenario import Scenario


class Script(Scenario):
    """Agents that each do what their `run` says, side by side."""

    name = "script"

    def __init__(self, agents: tuple[Agent, ...]) -> None:
        super().__init__()
        self._agents = agents

    async def play(self, game: Game) -> Scenario.Outcome:
        cast = [game.cast(copy.copy(agent)) for agent in self._agents]
        await game.play_agents(*cast)
        return self.Outcome()


def run(
    *agents: Agent | Scenario,
    engine: EnginePort | None = None,
    others: Engines | None = None,
    display: Kind | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> RunResult:
    """Play agents together, each by its `run`, or one scenario; show the transcript and return what it came to.

    `options` are those of `RunConfig` (model, models, mode, seed, games, temperature, max_tokens, limits, …).
    `engine` is used instead of loading a model, and `others` are models beside it, by the names that agents are
    given. `out` is a folder of runs to record in. Raises the error that ended the game, if one did; of several
    games none ends the others, and what ended them is in `errors`. `KeyboardInterrupt` after Ctrl-C.
    """
    config = RunConfig(**options)
    scenario, folder = _scenario(agents), None if out is None else Path(out)
    playing = partial(play, scenario, config, engine=engine, others=others, out=folder)
    played = play_shown(scenario, config, display, playing)
    if played.interrupted:
        raise KeyboardInterrupt
    if config.games == 1 and played.error is not None:
        raise played.error
    return played


def _scenario(agents: tuple[Agent | Scenario, ...]) -> Scenario:
    match agents:
        case (Scenario() as scenario,):
            return scenario
        case _ if agents and all(isinstance(agent, Agent) for agent in agents):
            return Script(tuple(agent for agent in agents if isinstance(agent, Agent)))
        case _:
            raise TypeError("give agentcho.run agents, or one scenario")
