"""Times forwards of running rows, by how many tokens they feed and to how many others these attend.

What is in the slots is zeros, for the time of a forward does not depend on it. Does not know: what the times are for.
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

TOKENS = (1, 2, 4, 8, 16, 32, 64)
ROWS = 8
"""The tokens of a forward are of so many rows at most, and each has as many as any other."""
SHALLOW, DEEP = 64, 1024
LEAST, SECONDS = 3, 0.25
"""Each forward is made so often at least, and again until so much time was spent on it; the quickest counts."""


def measure(runner: Runner, slots: Slots, context: int) -> ForwardCosts:
    """The table of a runner in a model of `context` positions, of which some must be free. It takes about half a second
    for a small model, and some twenty forwards of each depth for a large one."""
    deep = max(2, min(DEEP, context - max(TOKENS) // ROWS))
    depths = min(SHALLOW, deep // 2), deep
    return ForwardCosts(TOKENS, depths, tuple(_row(runner, slots, depth) for depth in depths))


def _row(runner: Runner, slots: Slots, depth: int) -> tuple[float, ...]:
    """The seconds at one depth. More tokens never take less: what says so was disturbed."""
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
    """The least that a forward of so many tokens of each of these rows takes."""
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
