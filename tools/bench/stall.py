"""The effect of a long prefill on concurrent decodes, and vice versa, by how many of its tokens go into a step: times
between tokens without the prefill and during it, and the duration of the prefill with decodes and alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from time import perf_counter
from typing import Any

import numpy

from agentcho.lab.bench.result import Figures
from agentcho.lab.timing import alone, turns
from agentcho.protocol.call import Decode, Prefill
from agentcho.protocol.progress import ProgressCallback
from tools.bench.step import tokens_of

ROWS = 8
STEPS = 40
"""Undisturbed steps before a prefill, and again after it."""
UNDISTURBED = "undisturbed"
BUDGETS = (None, 8, 32, 64, 128)
"""Tokens of a prefill per step, unless other ones are requested. None: as many as the engine chooses."""


def beside(tokens: int, budget: int | None) -> str:
    """The arm of a prefill concurrent with decodes."""
    return f"beside a prefill of {tokens} tokens" + ("" if budget is None else f", {budget} a step")


def by_itself(tokens: int) -> str:
    """The arm of a prefill alone."""
    return f"a prefill of {tokens} tokens alone"


@alone
def stall(
    engine: Any, tokens: int, budgets: Sequence[int | None], repeats: int, seed: int, tell: ProgressCallback
) -> list[Figures]:
    """Figures of "8 rows": `UNDISTURBED`, and `beside` for each budget, with "p95" and "median" seconds between tokens.
    The latter also have "prefill", its seconds from submission to its end, as does `by_itself`; and "without", the 95th
    percentile of the steps right before and after, because with smaller budgets the rows' contexts become longer.
    Budgets take turns, and a short warm-up comes first."""
    arms = [UNDISTURBED, by_itself(tokens), *(beside(tokens, budget) for budget in budgets)]
    found: dict[str, list[dict[str, float]]] = {arm: [] for arm in arms}
    _take(engine, 256, seed)
    for number in range(repeats):
        told, without = tokens_of(engine, tokens, seed + number), list[float]()
        found[arms[1]].append({"prefill": _alone(engine, told)})
        for place, budget in enumerate(turns(budgets, number)):
            done = number * len(budgets) + place
            tell(f"runs (prefills of {tokens} tokens beside {ROWS} rows)", done, repeats * len(budgets))
            engine.take_place(0, budget)
            undisturbed, during = _take(engine, tokens, seed + number)
            without += undisturbed
            taken = {"prefill": sum(during), "without": _between(undisturbed)["p95"]}
            found[beside(tokens, budget)].append(_between(during) | taken)
        found[UNDISTURBED].append(_between(without))
    engine.take_place(0)
    return [Figures.of(f"{ROWS} rows", arm, found[arm]) for arm in arms]


def _between(times: list[float]) -> dict[str, float]:
    """Figures of the times between tokens."""
    return {"p95": float(numpy.percentile(times, 95)), "median": median(times)}


def _alone(engine: Any, told: tuple[int, ...]) -> float:
    """Seconds of a prefill with nothing else running."""
    began = perf_counter()
    ids = engine.submit([Prefill("", tokens=told)])
    while not engine.finished(ids[0]):
        engine.step()
    taken = perf_counter() - began
    engine.release(ids)
    return taken


def _take(engine: Any, tokens: int, seed: int) -> tuple[list[float], list[float]]:
    """Seconds of each step without the prefill, half before and half after it because the rows' contexts grow, and of
    each step during it. The rows decode in all of these steps."""
    told = tokens_of(engine, tokens, seed)
    [read] = engine.submit([Prefill("", tokens=told[:256])])
    engine.step()
    rows = engine.submit([Decode(parents=[read], forced=told) for _ in range(ROWS)])
    engine.step()
    without = [_step(engine) for _ in range(STEPS)]
    [long] = engine.submit([Prefill("", tokens=told)])
    during = []
    while not engine.finished(long):
        during.append(_step(engine))
    without += [_step(engine) for _ in range(STEPS)]
    engine.cancel(rows)
    engine.release([read, long])
    return without, during


def _step(engine: Any) -> float:
    began = perf_counter()
    spoken = engine.step().spoken
    assert len(spoken) == ROWS
    return perf_counter() - began
