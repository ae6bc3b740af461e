"""What a long prefill costs those who speak meanwhile: times between tokens without it and beside it.

Does not know: how prefills are divided.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import perf_counter
from typing import Any

import numpy

from agentcho.calls.call import Decode, Prefill
from agentcho.lab.bench.result import Figures
from agentcho.progress import Tell
from tools.bench.step import tokens_of

ROWS = 8
ALONE = 40
"""Steps that are taken undisturbed before a prefill, and again after it."""


def stall(engine: Any, tokens: int, repeats: int, seed: int, tell: Tell) -> list[Figures]:
    """Figures of "8 rows", arms "undisturbed" and "beside a prefill of … tokens": "p95" and "median" seconds between
    tokens, the latter's also "prefill", its seconds from submission to its end. A short warm-up comes before."""
    with ThreadPoolExecutor(1) as thread:  # torch keeps a pool of compute threads for each that calls it
        return thread.submit(_stall, engine, tokens, repeats, seed, tell).result()


def _stall(engine: Any, tokens: int, repeats: int, seed: int, tell: Tell) -> list[Figures]:
    beside: dict[str, list[float]] = {"p95": [], "median": [], "prefill": []}
    alone: dict[str, list[float]] = {"p95": [], "median": []}
    _take(engine, 256, seed)
    for number in range(repeats):
        tell(f"repeats (a prefill of {tokens} tokens beside {ROWS} rows)", number, repeats)
        without, during = _take(engine, tokens, seed + number)
        for found, times in ((alone, without), (beside, during)):
            found["p95"].append(float(numpy.percentile(times, 95)))
            found["median"].append(median(times))
        beside["prefill"].append(sum(during))
    kept = (("undisturbed", alone), (f"beside a prefill of {tokens} tokens", beside))
    return [
        Figures(subject=f"{ROWS} rows", arm=arm, values={what: tuple(each) for what, each in values.items()})
        for arm, values in kept
    ]


def _take(engine: Any, tokens: int, seed: int) -> tuple[list[float], list[float]]:
    """Seconds of each step before and after, for those who speak have read more by then, and of each until the prefill
    is done; rows speak in all of them."""
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
