"""The table of one GPU: the paper's workflows against the library's continuous batching, and a decode step against the
time that its weights take to stream.

Runs on a CPU too, where its targets say little. Does not know: how a workflow is played.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from agentcho.lab.bench.arms import AUDIT, BASELINE, CONTINUOUS, ENFORCE
from agentcho.lab.bench.measure import workflows
from agentcho.lab.bench.plans import Workload
from agentcho.lab.bench.result import Figures
from agentcho.lab.timing import alone
from agentcho.protocol.progress import ProgressCallback
from tools.bench.step import ROWS, STEPS, Kind, OurRows, tokens_of
from tools.bench.targets import WEIGHTS, step_of

ARMS = (AUDIT, ENFORCE, BASELINE, CONTINUOUS)


def gpu(
    engine: Any, subjects: Sequence[Workload], context: int, repeats: int, seed: int, tell: ProgressCallback
) -> list[Figures]:
    """Figures of decode steps, arms "agentcho" and `WEIGHTS`, in "seconds", and of all subjects in `ARMS`, token by
    token. The steps come first: they are over in seconds."""
    return [*_steps(engine, context, repeats, seed, tell), *workflows(engine, subjects, ARMS, repeats, True, tell)]


@alone
def _steps(engine: Any, context: int, repeats: int, seed: int, tell: ProgressCallback) -> list[Figures]:
    """Figures of each number of rows, with the machine's rate in the same repeat ("bytes" a second). A warm-up comes
    before."""
    from tools.bench.rates import rates, streamed

    told, size = tokens_of(engine, context, seed), streamed(engine.network)
    ours = {rows: OurRows(engine, told, Kind(rows), (repeats + 1) * STEPS) for rows in ROWS}
    taken: dict[int, list[float]] = {rows: [] for rows in ROWS}
    able: list[float] = []
    for number in range(repeats + 1):
        tell("repeats (decode steps)", number, repeats + 1)
        able.append(rates(engine.network).bytes)
        for rows in ROWS:
            taken[rows].append(median(ours[rows].step() for _ in range(STEPS)))
    alone = {"seconds": tuple(size / bytes for bytes in able[1:]), "bytes": tuple(able[1:])}
    kept = [(step_of(rows), {"agentcho": {"seconds": tuple(taken[rows][1:])}, WEIGHTS: alone}) for rows in ROWS]
    return [Figures(subject=name, arm=arm, values=values) for name, arms in kept for arm, values in arms.items()]
