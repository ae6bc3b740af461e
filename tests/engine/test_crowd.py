"""Counts how many steps a captured forward serves when many agents speak again and again, for random lengths, over
each other's messages. Nothing is captured or computed: would-be graphs are counted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from agentcho import Decode, Engine
from agentcho.engine.call_layout import Segment
from agentcho.protocol.call import EncodingId, Shadow
from agentcho.runner.attention import triton_paged
from agentcho.runner.graphs import CudaGraphs, Forward, Kind
from agentcho.runner.kv.lanes import LanePool, Room
from agentcho.runner.slots import Slots

from ..engines import Engines

MEAN, THINKING = 120, 10
"""The mean number of tokens in a message, and the most steps an agent pauses between messages."""


class Counted(CudaGraphs):
    """Counts the graphs captured, the steps that had rows, and among these the steps that replayed a graph, those with
    other work to compute eagerly, and those in which no token was sampled."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine._model, engine._runner.layers, self._captured)
        self.counts = Counter[str]()

    def _captured(self, forward: Forward) -> Forward:
        self.counts["captured"] += 1
        return forward

    def taken(self, segments: Sequence[Segment]) -> list[Segment]:
        found = super().taken(segments)
        self.counts["eager too"] += len(found) < len(segments)
        self.counts["no answer"] += not any(each.wanted for each in segments)
        return found

    def run(self, *args: Any) -> Any:
        self.counts["steps"] += 1
        return super().run(*args)

    def _logits(self, pool: LanePool, kind: Kind, table: Tensor) -> Tensor:
        graph = self._graphs.get(kind)
        self.counts["replayed"] += graph is not None and graph.proved
        return super()._logits(pool, kind, table)


def crowd(engine: Engine, agents: int, shadows: bool, steps: int) -> int:
    """Let the agents speak; returns the number of steps in which any did. With `shadows`, every message with parents
    gets a shadow."""
    dice, done, running = random.Random(1), list[EncodingId](), dict[int, EncodingId]()
    rest, spoken = {agent: dice.randint(0, THINKING) for agent in range(agents)}, 0
    for _ in range(steps):
        for agent in range(agents):
            rest[agent] -= 1
            if agent in running or rest[agent] >= 0:
                continue
            read = dice.sample(done[-12:], min(len(done), dice.randint(1, 6), 12))
            said = tuple(dice.randint(40, 90) for _ in range(max(8, int(dice.expovariate(1 / MEAN)))))
            call = Decode(parents=read, forced=said)
            running[agent] = engine.submit([call, *([Shadow(call, read[:1])] if shadows and read else [])])[0]
        if engine.idle:
            continue
        spoken += bool(engine.rows or running)
        engine.step()
        for agent, id in list(running.items()):
            if engine.finished(id):
                done.append(running.pop(agent))
                rest[agent] = dice.randint(0, THINKING)
    return spoken


@pytest.fixture
def counted(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> tuple[Engine, Counted]:
    """An engine whose rows read in place, with as much room as a GPU has, and whose attention returns zeros."""

    def nothing(asked: Any, store: Any, lanes: Any, **_: Any) -> Tensor:
        found: Tensor = asked.queries.new_zeros(*asked.queries.shape[:2], lanes.values.shape[3])
        return found

    monkeypatch.setattr(triton_paged, "attend_stored", nothing)
    engine = engines(store_tokens=1 << 17)
    slots = engine._runner.slots
    assert isinstance(slots, Slots)
    slots.in_place, slots._room = True, Room(65, 512, 4096)
    graphs = engine._runner.graphs = Counted(engine)
    graphs.prepare(slots.lanes)
    return engine, graphs


CROWDS = [
    pytest.param(1, False, 400, 0.95, id="1"),
    pytest.param(1, True, 400, 0.95, id="1, with shadows"),
    pytest.param(16, False, 400, 0.9, id="16", marks=pytest.mark.slow),
    pytest.param(16, True, 400, 0.9, id="16, with shadows", marks=pytest.mark.slow),
    pytest.param(64, False, 300, 0.9, id="64", marks=pytest.mark.slow),
    pytest.param(64, True, 300, 0.9, id="64, with shadows", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("agents", "shadows", "steps", "least"), CROWDS)
def test_most_steps_of_a_crowd_are_replayed(
    agents: int, shadows: bool, steps: int, least: float, counted: tuple[Engine, Counted]
) -> None:
    engine, graphs = counted
    with torch.inference_mode():
        spoken = crowd(engine, agents, shadows, steps)
    found = graphs.counts
    print(f"{agents} agents, shadows {shadows}: {found['replayed']} of {spoken} steps replayed, {dict(found)}")
    assert found["replayed"] >= least * spoken
    assert found["captured"] < 40
    assert found["no answer"] <= 0.02 * spoken, "docs/gpu.md says that hardly any step could overlap with another"
