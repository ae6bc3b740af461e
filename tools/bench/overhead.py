"""The choreographer's own cost: its share of wall time next to a model, and requests per second on a fake engine."""

from __future__ import annotations

import random
from collections.abc import Mapping
from time import perf_counter
from typing import Any

from agentcho.choreography.choreographer import Choreographer
from agentcho.choreography.requests import Request
from agentcho.games.runs.replay import replay
from agentcho.games.runs.runtime import blocking
from agentcho.lab.bench.measure import Timed, measure
from agentcho.lab.bench.result import Figures
from agentcho.lab.bench.workflows import line, random_words, spoken, whole
from agentcho.protocol.call import Decode, StepResult
from agentcho.protocol.progress import ProgressCallback
from agentcho.records.trace import Workflow
from agentcho.testing import FakeEngine

NAME = "choreographer"


class Watched:
    """An engine whose steps are timed. `seconds` is their total."""

    def __init__(self, engine: Any) -> None:
        self._engine, self.seconds = engine, 0.0

    def step(self, deterministic: bool = False) -> StepResult:
        """See `EnginePort.step`."""
        began = perf_counter()
        try:
            result: StepResult = self._engine.step(deterministic)
            return result
        finally:
            self.seconds += perf_counter() - began

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def share(engine: Any, agents: int, repeats: int, seed: int, tell: ProgressCallback) -> list[Figures]:
    """The share of wall time outside the engine's steps while `agents` agents talk in two simultaneous rounds."""
    many, small = crowd(seed, agents, 2, 8), crowd(seed, 2, 1, 2)
    timed = Timed(lambda: _share(engine, small), lambda: _share(engine, many))
    return measure(f"{agents} agents", {NAME: timed}, repeats, tell)


def _share(engine: Any, played: Workflow) -> Mapping[str, float]:
    watched = Watched(engine)
    seconds = replay(played, watched, leakage="audit", logits=False).seconds
    return {"share": 1 - watched.seconds / seconds, "seconds": seconds, "steps": watched.seconds}


def requests(agents: int, each: int, repeats: int, tell: ProgressCallback) -> list[Figures]:
    """Requests per second of `agents` agents on a fake engine, including and excluding the fake's own time. Each agent
    makes `each` requests of one word, one after another."""
    timed = Timed(lambda: _requests(agents, 1), lambda: _requests(agents, each))
    return measure(f"{agents} agents, fake engine", {NAME: timed}, repeats, tell)


def _requests(agents: int, each: int) -> Mapping[str, float]:
    fake = FakeEngine()
    watched, word = Watched(fake), tuple(fake.framing.content.encode("yes"))
    seconds = blocking(_talk, watched, word, agents, each)
    count = agents * each
    return {"requests a second": count / seconds, "without the engine": count / (seconds - watched.seconds)}


async def _talk(engine: Any, word: tuple[int, ...], agents: int, each: int) -> float:
    """The total seconds of all requests."""
    async with Choreographer(engine, leakage="audit") as choreographer:

        async def agent(number: int) -> None:
            for _ in range(each):
                result = await choreographer.run(Request((Decode(forced=word),), (number,)))
                choreographer.release([result.made[0].id])

        began = perf_counter()
        await choreographer.tasks.run(choreographer.tasks.together(*(agent(number) for number in range(agents))))
        return perf_counter() - began


def crowd(seed: int, agents: int, rounds: int, words: int) -> Workflow:
    """Agents with private rules who speak simultaneously, round by round. Each reads its own messages and those of
    three others."""
    names, dice = [f"agent{number}" for number in range(agents)], random.Random(seed)

    def said() -> str:
        return random_words(random.Random(dice.randrange(1 << 30)), words)

    lines = [line(f"{name}.0", name, [], said(), audience=[name]) for name in names]
    for turn in range(1, rounds + 1):
        for place, name in enumerate(names):
            near = dict.fromkeys(names[(place + step) % agents] for step in range(4)) if turn > 1 else {}
            parents = [f"{name}.0", *(f"{other}.{turn - 1}" for other in near)]
            lines.append(spoken(f"{name}.{turn}", name, parents, said()))
    return whole("crowd", seed, names, lines)
