"""The effect of a long prefill on decodes beside it: times between tokens without the prefill and beside it.

Does not know: how prefills are divided.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import numpy

from agentcho.calls.call import Decode, Prefill
from agentcho.lab.bench.result import Figures
from agentcho.lab.timing import alone
from agentcho.progress import Tell
from tools.bench.step import tokens_of

ROWS = 8
ALONE = 40
"""Undisturbed steps before a prefill, and again after it."""


@alone
def stall(engine: Any, tokens: int, repeats: int, seed: int, tell: Tell) -> list[Figures]:
    """Figures of "8 rows", arms "undisturbed" and "beside a prefill of … tokens": "p95" and "median" seconds between
    tokens; of the second arm also "prefill", its seconds from submission to its end. A short warm-up comes before."""
    beside, undisturbed = list[dict[str, float]](), list[dict[str, float]]()
    _take(engine, 256, seed)
    for number in range(repeats):
        tell(f"repeats (a prefill of {tokens} tokens beside {ROWS} rows)", number, repeats)
        without, during = _take(engine, tokens, seed + number)
        undisturbed.append(_between(without))
        beside.append(_between(during) | {"prefill": sum(during)})
    subject = f"{ROWS} rows"
    return [
        Figures.of(subject, "undisturbed", undisturbed),
        Figures.of(subject, f"beside a prefill of {tokens} tokens", beside),
    ]


def _between(times: list[float]) -> dict[str, float]:
    """Figures of the times between tokens."""
    return {"p95": float(numpy.percentile(times, 95)), "median": median(times)}


def _take(engine: Any, tokens: int, seed: int) -> tuple[list[float], list[float]]:
    """Seconds of each step without the prefill, half before and half after it, for rows have longer contexts by then;
    and of each step beside it. Rows decode in all of these steps."""
    told = tokens_of(engine, tokens, seed)
    [read] = engine.submit([Prefill("", tokens=told[:256])])
    engine.step()
    rows = engine.submit([Decode(parents=[read], forced=told) for _ in range(ROWS)])
    engine.step()
    without = [_step(engine) for _ in range(ALONE)]
    [long] = engine.submit([Prefill("", tokens=told)])
    during = []
    while not engine.finished(long):
        during.append(_step(engine))
    without += [_step(engine) for _ in range(ALONE)]
    engine.cancel(rows)
    engine.release([read, long])
    return without, during


def _step(engine: Any) -> float:
    began = perf_counter()
    spoken = engine.step().spoken
    assert len(spoken) == ROWS
    return perf_counter() - began
