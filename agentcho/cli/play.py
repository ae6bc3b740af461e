"""`agentcho run`: everything is checked first, then the model is loaded, then the games are played and shown.

Does not know: what a scenario does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from agentcho import library
from agentcho.cli.options import configured
from agentcho.config import RunConfig
from agentcho.display import Kind, heading, screen
from agentcho.errors import AgentchoError
from agentcho.request import EnginePort
from agentcho.runtime import Played, play
from agentcho.scenario import Scenario


def play_scenario(
    name: str, given: Mapping[str, str], config: RunConfig, display: Kind | None, out: Path, at_once: int | None
) -> int:
    """Play a scenario by name. Returns the exit code: 0, 2 after an error in a game, 130 after Ctrl-C."""
    scenario = configured(library.scenario(name), given)
    for agent in library.casts(type(scenario)):
        library.agent(agent)
    return exit_code(play_shown(scenario, config, display, out, at_once))


def play_shown(
    scenario: Scenario, config: RunConfig, display: Kind | None, out: Path | None, at_once: int | None,
    engine: EnginePort | None = None,
) -> Played:  # fmt: skip
    """Play on a screen. An error in the scenario's own code is a `ScenarioBroken` with its line."""
    with screen(display, heading(scenario.name, config), config.games, sys.stdout) as shown:
        try:
            played = play(scenario, config, engine=engine, sink=shown.hear, out=out, at_once=at_once)
        except AgentchoError:
            raise
        except Exception as error:
            blamed = library.blame(error, type(scenario))
            if blamed is None:
                raise
            raise blamed from error
    shown.close(played)
    return played


def exit_code(played: Played) -> int:
    """Prints the error that ended a game, if one did."""
    if played.interrupted:
        return 130
    if played.error is not None:
        raise played.error
    return 0
