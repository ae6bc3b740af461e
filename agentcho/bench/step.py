"""One decode step, one row and eight, against a stock cached forward over a context of the same length.

All four take turns step by step, in one thread. Does not know: choreographers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import perf_counter
from typing import Any

from agentcho.bench.result import Figures
from agentcho.bench.workflows import words_of
from agentcho.request import Decode, Prefill

ROWS = (1, 8)
STEPS = 8
"""Steps whose median is one repeat."""


def step(engine: Any, context: int, repeats: int, seed: int) -> list[Figures]:
    """Figures of "1 row" and "8 rows", arms "agentcho" and "stock", in "seconds" a step; a warm-up comes before."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_steps, engine, context, repeats, seed).result()


def _steps(engine: Any, context: int, repeats: int, seed: int) -> list[Figures]:
    from agentcho.engine.decoding import StockRows
    from agentcho.engine.generating import stock_attention

    told = tokens_of(engine, context, seed)
    ours = {rows: OurRows(engine, told, rows, (repeats + 1) * STEPS) for rows in ROWS}
    with stock_attention(engine.network):
        stock = {rows: StockRows(engine.network, ours[rows].context, rows) for rows in ROWS}

    def take_ours() -> dict[tuple[str, int], float]:
        return {("agentcho", rows): ours[rows].step() for rows in ROWS}

    def take_stock() -> dict[tuple[str, int], float]:
        with stock_attention(engine.network):
            return {("stock", rows): stock[rows].step() for rows in ROWS}

    found = [_repeat(number, take_ours, take_stock) for number in range(repeats + 1)][1:]
    return [
        Figures(subject=f"{rows} row{'s' if rows > 1 else ''}", arm=arm,
                values={"seconds": tuple(one[arm, rows] for one in found)})
        for rows in ROWS for arm in ("agentcho", "stock")
    ]  # fmt: skip


Takes = Callable[[], Mapping[tuple[str, int], float]]


def _repeat(number: int, *both: Takes) -> dict[tuple[str, int], float]:
    """The median of a few steps each; who begins changes."""
    found: dict[tuple[str, int], list[float]] = {}
    for turn in range(STEPS):
        for take in both if (number + turn) % 2 == 0 else reversed(both):
            for what, seconds in take().items():
                found.setdefault(what, []).append(seconds)
    return {what: median(seconds) for what, seconds in found.items()}


def tokens_of(engine: Any, count: int, seed: int) -> tuple[int, ...]:
    """So many content ids of random words."""
    return tuple(engine.framing.content.encode(words_of(count, seed))[:count])


class OurRows:
    """Rows that decode forced words over one message of known tokens, on an engine of their own. `context` are the ids
    of what each row attends to, its own first ones included. At most `steps` steps."""

    def __init__(self, engine: Any, told: tuple[int, ...], rows: int, steps: int) -> None:
        self._engine = engine.adapted(None)
        read = self._engine.prefill([Prefill("", tokens=told)])
        forced = tuple(told[place % len(told)] for place in range(steps + 2))
        self._engine.submit([Decode(parents=read, forced=forced) for _ in range(rows)])
        self._engine.step()
        framing = self._engine.framing
        start = () if framing.bos is None else (framing.bos,)
        words = self._engine.message(read[0]).tokens
        self.context: tuple[int, ...] = (*start, *words, *framing.opening("assistant", None))

    def step(self) -> float:
        """Seconds of one step of the engine."""
        began = perf_counter()
        self._engine.step()
        return perf_counter() - began
