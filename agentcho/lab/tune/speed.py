"""How many traces a second training takes whole, against a forward a call, in turns on the same traces.

Does not know: optimizers, what is learned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from agentcho.engine import Engine
from agentcho.engine.device import synchronize
from agentcho.lab.tune.lessons import packed
from agentcho.lab.tune.losses import loss, loss_by_calls
from agentcho.lab.tune.unfolding import Unfolded


class Speed(NamedTuple):
    """Medians over turns: traces a second, forward and backward, and their ratio within a turn (median, least,
    largest)."""

    whole: float
    by_calls: float
    ratio: tuple[float, float, float]


def speed(engine: Engine, traces: Sequence[Unfolded], tokens: int, turns: int = 3) -> Speed:
    """Time both, after one turn to warm up. Gradients are made and dropped."""
    weights = [each for each in engine.network.parameters() if each.requires_grad]
    arms: list[Callable[[], list[Tensor]]] = [
        lambda: [loss(engine, together) for together in packed(traces, tokens)],
        lambda: [loss_by_calls(engine, trace) for trace in traces],
    ]
    seconds: list[list[float]] = [[], []]
    for turn in range(turns + 1):
        for number in (0, 1) if turn % 2 else (1, 0):
            began = perf_counter()
            torch.autograd.grad(torch.stack(arms[number]()).sum(), weights, allow_unused=True)
            synchronize(weights[0].device)
            if turn > 0:
                seconds[number].append(perf_counter() - began)
    whole, calls = seconds
    ratios = [slow / quick for quick, slow in zip(whole, calls, strict=True)]
    many = len(traces)
    return Speed(many / median(whole), many / median(calls), (median(ratios), min(ratios), max(ratios)))
