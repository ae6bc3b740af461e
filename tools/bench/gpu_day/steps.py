"""Measures decode steps over messages that are already encoded, replayed as CUDA graphs and eager, compared with the
minimum time and with transformers' own steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from agentcho.lab.bench.peers.continuous import Continuous
from agentcho.lab.bench.peers.generate import Forced, Generating, Times, stock_attention
from agentcho.lab.bench.played import ArmUnavailable
from tools.bench.gpu_day.day import Day
from tools.bench.gpu_day.traced import counting_replays
from tools.bench.rates import streamed, work
from tools.bench.step import Kind, OurRows, tokens_of

WARM = 6
"""Steps before the timed ones: in the first, a graph is captured and proved."""
SAID = 16
"""Tokens that each request of a peer generates."""


def rates(day: Day) -> None:
    """The rates of the device, and the time of streaming the weights once."""
    found, size = day.rates, streamed(day.engine.network)
    day.keep("bytes a second", found.bytes)
    day.keep("operations a second", found.operations)
    day.keep("weights of a step", size)
    day.keep("streaming them", size / found.bytes)


def steps(day: Day) -> None:
    """Seconds of each step, for each number of rows over each context: all over one message, and over one each."""
    for context in day.sizes.contexts:
        for rows in day.sizes.rows:
            for kind in [Kind(rows)] if rows == 1 else [Kind(rows), Kind(rows, apart=True)]:
                name = f"{kind.name} over {context}"
                tokens = (rows if kind.apart else 1) * context + rows * (WARM + 2 * day.sizes.steps + 32)
                if tokens > day.engine.room[0]:
                    day.keep(name, {"why": f"{tokens} tokens do not fit into a store of {day.engine.room[0]}"})
                else:
                    day.keep(name, _step(day, kind, context))


def _step(day: Day, kind: Kind, context: int) -> dict[str, Any]:
    count, engine = day.sizes.steps, day.engine
    least = work(engine.network, 1, kind.rows, context, kind.apart).least(day.rates)
    told = tokens_of(engine, context, day.asked.seed)
    with OurRows(engine, told, kind, WARM + 2 * count + 4) as ours:
        for _ in range(WARM):
            ours.step()
        with counting_replays() as replays:
            replayed = [ours.step() for _ in range(count)]
        with eager(engine):
            ours.step()
            alone = [ours.step() for _ in range(count)]
    return {"least": least, "replayed": replayed, "replays": replays[0], "steps": count, "eager": alone}


@contextmanager
def eager(engine: Any) -> Iterator[None]:
    """The engine without CUDA graphs, within the context."""
    graphs, engine._runner.graphs = engine._runner.graphs, None
    try:
        yield
    finally:
        engine._runner.graphs = graphs


def peers(day: Day) -> None:
    """Seconds per step of stock `generate` and of continuous batching, on the same weights and rows."""
    for context in day.sizes.contexts:
        told = tokens_of(day.engine, context, day.asked.seed)
        for rows in day.sizes.rows:
            calls = [Forced(f"row {row}", (*told[row:], *told[:row]), told[:SAID]) for row in range(rows)]
            for arm in (_generate, _continuous):
                day.keep(f"{Kind(rows).name} over {context}, {arm.__name__[1:]}", _peer(arm, day.engine, calls))


def _peer(arm: Any, engine: Any, calls: list[Forced]) -> dict[str, Any]:
    """Seconds per token once all rows are generating, or why there are none."""
    try:
        with stock_attention(engine.network), torch.inference_mode():
            times: list[Times] = arm(engine, calls)
    except (ArmUnavailable, torch.OutOfMemoryError) as error:
        return {"why": str(error).splitlines()[0]}
    first = max(each.first for each in times)
    return {"seconds": (max(each.ended for each in times) - first) / SAID}


def _generate(engine: Any, calls: list[Forced]) -> list[Times]:
    return Generating(engine.network, engine.framing.end).batch(calls)


def _continuous(engine: Any, calls: list[Forced]) -> list[Times]:
    room = sum(len(call.prompt) + len(call.text) + 64 for call in calls)
    with Continuous(network=engine.network, stop=engine.framing.end, tokens=room, calls=len(calls)) as stock:
        for number, call in enumerate(calls):
            stock.submit(str(number), call)
        return [stock.next()[1] for _ in calls]
