"""Cross-entropy of the decodes of whole workflows, in one forward or in one forward per call. Independent of
optimizers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from agentcho.lab.tune.unfolding import Unfolded
from agentcho.runner.engine import Engine
from agentcho.runner.gradients import Made


def loss(engine: Engine, traces: Sequence[Unfolded]) -> Tensor:
    """The sum over all targets, in nats, of traces that share one forward without attending to each other. Gradients
    flow through every key and value that a call attends to."""
    rows = engine.differentiable([segment for trace in traces for segment in trace.segments])
    return _summed(rows, [target for trace in traces for target in trace.targets])


def loss_by_calls(engine: Engine, trace: Unfolded) -> Tensor:
    """The same loss of one trace with one forward per call, as a program with a cache per message would compute it."""
    made, rows = Made(), list[Tensor]()
    for segment in trace.segments:
        found = engine.differentiable([segment], made)
        rows += [found] if segment.wanted else []
    return _summed(torch.cat(rows), trace.targets)


def _summed(rows: Tensor, targets: Sequence[int]) -> Tensor:
    return cross_entropy(rows, torch.tensor(targets, device=rows.device), reduction="sum")


@torch.no_grad()
def mean_loss(engine: Engine, forwards: Sequence[Sequence[Unfolded]]) -> float:
    """The mean loss over forwards of traces, in nats a target."""
    total = sum(loss(engine, traces).item() for traces in forwards)
    return total / words(trace for traces in forwards for trace in traces)


def words(traces: Iterable[Unfolded]) -> int:
    """The number of targets in traces."""
    return sum(len(trace.targets) for trace in traces)
