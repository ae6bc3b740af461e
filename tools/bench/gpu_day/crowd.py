"""Measures many agents who speak in turn over the last messages of others, with and without shadows: tokens per second,
and how many steps were replayed.
"""

from __future__ import annotations

import random
from time import perf_counter
from typing import Any

from agentcho.protocol.call import Decode, Shadow
from tools.bench.gpu_day.day import Day
from tools.bench.gpu_day.traced import counting_replays
from tools.bench.step import tokens_of

HEARD = 12
"""The number of latest messages from which agents choose."""
READ, REST = 6, 10
"""The maximum number of messages that a call reads, and the maximum number of steps for which an agent rests."""


def crowd(day: Day) -> None:
    """Run every number of agents, without and with shadows."""
    for agents in day.sizes.agents:
        for shadows in (False, True):
            name = f"{agents} agent{'s' if agents > 1 else ''}{', shadows' if shadows else ''}"
            day.keep(name, _crowd(day, agents, shadows))


def _crowd(day: Day, agents: int, shadows: bool) -> dict[str, Any]:
    engine, dice = day.engine, random.Random(day.asked.seed)
    words = tokens_of(engine, 512, day.asked.seed)
    running, done, resting = dict[int, tuple[int, ...]](), list[tuple[int, ...]](), dict[int, int]()
    steps, rows, said, moved = 0, 0, 0, getattr(engine.store, "moved", 0)
    began = perf_counter()
    with counting_replays() as replays:
        while steps < day.sizes.crowd_steps:
            for agent in range(agents):
                if agent not in running and resting.setdefault(agent, dice.randint(0, REST)) <= 0:
                    running[agent] = _speak(engine, dice, [ids[-1] for ids in done], words, day.sizes.mean, shadows)
                resting[agent] -= 1
            if engine.idle:
                continue
            rows += len(engine.debug.rows)
            said += len(engine.step().spoken)
            steps += 1
            for agent, ids in list(running.items()):
                if all(map(engine.finished, ids)):
                    done.append(running.pop(agent))
                    resting[agent] = dice.randint(0, REST)
            while len(done) > HEARD:
                engine.release(done.pop(0))
    seconds = perf_counter() - began
    engine.cancel([call.id for call in engine.debug.calls])
    engine.release(id for ids in done for id in ids)
    return {
        "seconds": seconds,
        "steps": steps,
        "rows a step": rows / steps,
        "tokens a second": said / seconds,
        "replays": replays[0],
        "growths": getattr(engine.store, "moved", 0) - moved,
    }


def _speak(
    engine: Any, dice: random.Random, done: list[int], words: tuple[int, ...], mean: int, shadows: bool
) -> tuple[int, ...]:
    """Submit one message of random length, over some of the finished ones. Its shadow, which others read, is only over
    the first of them."""
    heard = done[-HEARD:]
    read = dice.sample(heard, min(len(heard), dice.randint(1, READ)))
    length = min(len(words), max(4, int(dice.expovariate(1 / mean))))
    call = Decode(parents=read, forced=words[:length])
    told: tuple[int, ...] = engine.submit([call, *([Shadow(call, read[:1])] if shadows and read else [])])
    return told
