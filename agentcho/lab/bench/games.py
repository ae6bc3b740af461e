"""Times the same games side by side on one engine, and one after another."""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple

from agentcho.config import RunConfig
from agentcho.events import Counting
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import RunResult, load_engine, play
from agentcho.protocol.progress import ProgressCallback, no_progress
from agentcho.scenario import Scenario


class BothWays(NamedTuple):
    """Seconds and engine steps of both ways, without loading. `same` counts games with equal outcomes."""

    games: int
    together: float
    together_steps: int
    apart: float
    apart_steps: int
    same: int


def compare(scenario: Scenario, config: RunConfig, tell: ProgressCallback = no_progress) -> BothWays:
    """Play `config.games` games both ways on one loaded engine, after a warm-up game."""
    config = config.model_copy(update={"plain_markers": "accept"})
    engine = load_engine(config, tell)
    counting = Counting(tell, 2 * config.games + 1)
    play(RunRequest(scenario, config.model_copy(update={"games": 1}), engine=engine, sink=counting))
    begin = perf_counter()
    together = play(RunRequest(scenario, config, engine=engine, sink=counting))
    middle = perf_counter()
    apart = play(RunRequest(scenario, config, engine=engine, sink=counting, at_once=1))
    end = perf_counter()
    same = _same(together, apart)
    return BothWays(
        games=config.games,
        together=middle - begin,
        together_steps=together.steps,
        apart=end - middle,
        apart_steps=apart.steps,
        same=same,
    )


def _same(one: RunResult, other: RunResult) -> int:
    return sum(a.outcome == b.outcome for a, b in zip(one.games, other.games, strict=True))
