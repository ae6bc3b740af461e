"""Time and memory of a growing society: agents with private prompts in circles of ten, who all speak at once, round by
round. Each reads its prompt and the last eight messages that it may read.
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
"""Messages that an agent reads in addition to its prompt."""
PROMPT, SAID = 24, 12
"""Words of a private prompt, and tokens of a message."""
ARM = "enforce"


class Neighbour(Agent):
    """Reads its private prompt and the last messages that it may read."""

    def view(self, readable: Sequence[Metadata]) -> View:
        """See `Agent.view`."""
        return View.last(readable, READ, keep=[self.brief])


class Society(Scenario):
    """Circles of agents who all speak simultaneously."""

    name = "society"

    class Options(Scenario.Options):
        """Size and length."""

        agents: int = Field(100, ge=1)
        rounds: int = Field(20, ge=1)

    class Outcome(Scenario.Outcome):
        """The number of messages."""

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
    """Figures of each size ("100 agents"), arm `ARM`: "seconds" per message, "memory" in bytes per message by which the
    process grew since before the first, and its "peak" in bytes. Sizes increase, because memory once taken is not given
    back. A short warm-up comes first."""
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
    """The number of messages, and the seconds of the game."""
    config = RunConfig(seed=seed, temperature=1.0)
    began = perf_counter()
    played = play(RunRequest(Society(agents=agents, rounds=rounds), config, engine=engine))
    taken = perf_counter() - began
    played.check(1)
    return agents * rounds, taken


def peak() -> int:
    """The peak memory of this process, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most
