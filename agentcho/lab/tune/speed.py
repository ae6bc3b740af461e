"""Measures training speed in traces a second: packed forwards of whole traces against one forward per call, interleaved
on the same traces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from agentcho.lab.stats import Median, ratios
from agentcho.lab.timing import alone, in_turns
from agentcho.lab.tune.lessons import packed
from agentcho.lab.tune.losses import loss, loss_by_calls
from agentcho.lab.tune.unfolding import Unfolded
from agentcho.runner.engine import Engine
from agentcho.runner.model.device import synchronize


class Speed(NamedTuple):
    """Medians over repeats: traces a second, forward and backward, and their ratio within a repeat."""

    whole: float
    by_calls: float
    ratio: Median


@alone
def speed(engine: Engine, traces: Sequence[Unfolded], tokens: int, turns: int = 3) -> Speed:
    """Time both, after one repeat to warm up. Gradients are computed and dropped."""
    weights = [each for each in engine.network.parameters() if each.requires_grad]

    def timed(losses: Callable[[], list[Tensor]]) -> Callable[[int], float]:
        def take(turn: int) -> float:
            began = perf_counter()
            torch.autograd.grad(torch.stack(losses()).sum(), weights, allow_unused=True)
            synchronize(weights[0].device)
            return perf_counter() - began

        return take

    arms = {
        "whole": timed(lambda: [loss(engine, together) for together in packed(traces, tokens)]),
        "by calls": timed(lambda: [loss_by_calls(engine, trace) for trace in traces]),
    }
    whole, calls = in_turns(arms, range(turns + 1), lambda done: None).values()
    many = len(traces)
    return Speed(many / median(whole), many / median(calls), ratios(calls, whole))
