"""`agentcho run`: everything is checked first, then the model is loaded, then the games are played and shown.

Does not know: what a scenario does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from agentcho import library
from agentcho.cli.options import configured
from agentcho.cli.outputs import silence
from agentcho.config import RunConfig
from agentcho.display import Kind, heading, screen
from agentcho.errors import ReaderGone
from agentcho.request import EnginePort
from agentcho.runtime import Care, Played, play
from agentcho.scenario import Scenario

INTERRUPTED = 130
KEPT = "what was said until then is recorded, and `agentcho run --resume last` goes on"


def play_scenario(
    name: str, given: Mapping[str, str], config: RunConfig, display: Kind | None, out: Path, at_once: int | None,
    care: Care,
) -> int:  # fmt: skip
    """Play a scenario by name. Returns the exit code: 0, or 130 after Ctrl-C. `GamesFailed`: an error ended games."""
    scenario = configured(library.scenario(name), given)
    for agent in library.casts(type(scenario)):
        library.agent(agent)
    played = play_shown(scenario, config, display, out, at_once, care=care)
    if played.interrupted:
        return INTERRUPTED
    played.check(config.games)
    return 0


def play_shown(
    scenario: Scenario, config: RunConfig, display: Kind | None, out: Path | None, at_once: int | None,
    engine: EnginePort | None = None, care: Care | None = None,
) -> Played:  # fmt: skip
    """Play on a screen."""
    kept = "nothing was begun"
    try:
        with screen(display, heading(scenario.name, config), config.games, sys.stdout) as shown:
            kept = KEPT
            played = play(scenario, config, engine=engine, sink=shown.hear, out=out, at_once=at_once, care=care)
        kept = f"all games are over: {played.record}"
        shown.close(played)
    except BrokenPipeError:
        silence(sys.stdout)
        raise ReaderGone(kept) from None
    return played
