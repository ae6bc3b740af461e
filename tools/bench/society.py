"""Time and memory of a society that grows: agents with private prompts in circles of ten, who all speak at once, round
by round; each reads its prompt and the last eight messages that it may read.

Does not know: how engines work.
"""

from __future__ import annotations

import random
import resource
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from pydantic import Field

from agentcho.agent import Agent
from agentcho.config import RunConfig
from agentcho.games.play.game import Game
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.lab.bench.result import Figures
from agentcho.lab.bench.workflows import random_words
from agentcho.lab.timing import alone
from agentcho.message import Metadata
from agentcho.protocol.progress import ProgressCallback
from agentcho.provenance.views import View
from agentcho.scenario import Scenario

CIRCLE = 10
"""Agents who hear each other."""
READ = 8
"""Messages that an agent reads, its prompt aside."""
PROMPT, SAID = 24, 12
"""Words of a private prompt, and tokens of a message."""
ARM = "enforce"


class Neighbour(Agent):
    """It reads its private prompt and the last messages that it may read."""

    def view(self, readable: Sequence[Metadata]) -> View:
        """See `Agent.view`."""
        return View.last(readable, READ, keep=[self.brief])


class Society(Scenario):
    """Circles of agents who all speak at the same time."""

    name = "society"

    class Options(Scenario.Options):
        """How large, and how long."""

        agents: int = Field(100, ge=1)
        rounds: int = Field(20, ge=1)

    class Outcome(Scenario.Outcome):
        """How much was said."""

        messages: int

    options: Options

    async def play(self, game: Game) -> Outcome:
        """See `Scenario.play`."""
        dice = random.Random(game.seed)
        cast = [
            game.cast(Neighbour, f"agent{number}", system=random_words(dice, PROMPT))
            for number in range(self.options.agents)
        ]
        names = [agent.name for agent in cast]
        circles = [names[first : first + CIRCLE] for first in range(0, len(names), CIRCLE)]
        for _ in range(self.options.rounds):
            await game.together(
                *(agent.say(to=circles[number // CIRCLE], max_tokens=SAID) for number, agent in enumerate(cast))
            )
        return self.Outcome(messages=len(cast) * self.options.rounds)


@alone
def society(
    engine: Any, sizes: Sequence[int], rounds: int, repeats: int, seed: int, tell: ProgressCallback
) -> list[Figures]:
    """Figures of each size ("100 agents"), arm `ARM`: "seconds" a message, "memory" in bytes a message that the
    process has taken more than before the first, and its "peak" in bytes. Sizes grow, for memory that was taken once
    is not given back. A short warm-up comes before."""
    found: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
    _take(engine, CIRCLE, 2, seed)
    before, done = peak(), 0
    for size in sorted(sizes):
        for number in range(repeats):
            tell("runs (of societies)", done, len(sizes) * repeats)
            messages, seconds = _take(engine, size, rounds, seed + number)
            taken = {"seconds": seconds / messages, "memory": (peak() - before) / messages, "peak": float(peak())}
            found[size].append(taken)
            done += 1
    return [Figures.of(f"{size} agents", ARM, found[size]) for size in sizes]


def _take(engine: Any, agents: int, rounds: int, seed: int) -> tuple[int, float]:
    """Messages that were said, and the seconds of the game."""
    config = RunConfig(seed=seed, temperature=1.0)
    began = perf_counter()
    played = play(RunRequest(Society(agents=agents, rounds=rounds), config, engine=engine))
    taken = perf_counter() - began
    played.check(1)
    return agents * rounds, taken


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most
