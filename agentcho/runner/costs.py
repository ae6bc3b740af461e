"""Times forwards of running rows by the number of tokens they feed and the depth of the context they attend to.

The slots hold zeros, because the time of a forward does not depend on their content.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import torch

from agentcho.engine.call_layout import Segment
from agentcho.engine.runner_port import Runner
from agentcho.protocol.forward_costs import ForwardCosts
from agentcho.runner.kv.decode_kv import Slot
from agentcho.runner.slots import Slots

TOKENS = (1, 2, 3, 4, 8, 16, 32, 64)
ROWS = 8
"""The most rows a timed forward has. All its rows feed the same number of tokens."""
SHALLOW, DEEP = 64, 1024
LEAST, SECONDS = 3, 0.25
"""Each forward is run at least `LEAST` times, and again until `SECONDS` were spent on it; the fastest run counts."""


def measure(runner: Runner, slots: Slots, context: int) -> ForwardCosts:
    """Measure the cost table of a runner for a model of `context` positions, some of which must be free. This takes
    about half a second for a small model, and some twenty forwards per depth for a large one."""
    deep = max(2, min(DEEP, context - max(TOKENS) // ROWS))
    depths = min(SHALLOW, deep // 2), deep
    return ForwardCosts(TOKENS, depths, tuple(_row(runner, slots, depth) for depth in depths))


def _row(runner: Runner, slots: Slots, depth: int) -> tuple[float, ...]:
    """The seconds for each token count at one depth. A time below that of fewer tokens is noise and is raised to it."""
    opened = [slots.open(depth + max(TOKENS)) for _ in range(ROWS)]
    try:
        for slot in opened:
            slot.place(0, torch.arange(depth))
            slot.length = depth
        found = list[float]()
        for tokens in TOKENS:
            rows = opened[: min(ROWS, tokens)]
            found.append(max([*found[-1:], _seconds(runner, slots, rows, tokens // len(rows))]))
        return tuple(found)
    finally:
        for slot in opened:
            slots.close(slot)


def _seconds(runner: Runner, slots: Slots, rows: Sequence[Slot], each: int) -> float:
    """The shortest measured time of a forward that feeds `each` tokens to each of these rows."""
    spent, times = 0.0, list[float]()
    while len(times) < LEAST or spent < SECONDS:
        segments = [Segment((0,) * each, slot.length, slot=slot, wanted=range(each), row=True) for slot in rows]
        began = perf_counter()
        runner.step(segments)
        runner.synchronize()
        times.append(perf_counter() - began)
        spent += times[-1]
        for slot in rows:
            slots.retract(slot, each)
    return min(times)
