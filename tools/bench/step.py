"""One decode step with one row and with eight, compared with a stock cached forward over a context of the same length,
and with the deterministic profile.

Eight rows read the same message, or a message of their own each. All arms take turns step by step, in one thread.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from agentcho.lab.bench.result import Figures
from agentcho.lab.bench.workflows import random_words
from agentcho.lab.timing import alone, turns
from agentcho.protocol.call import Decode, Prefill
from agentcho.protocol.progress import ProgressCallback, no_progress

ROWS = (1, 8)
STEPS = 8
"""One repeat is the median of this many steps."""


class Kind(NamedTuple):
    """A number of rows. `apart`: each reads a message of its own."""

    rows: int
    apart: bool = False

    @property
    def name(self) -> str:
        """The name in figures."""
        return f"{self.rows} row{'s' if self.rows > 1 else ''}{' apart' if self.apart else ''}"


KINDS = (*map(Kind, ROWS), Kind(ROWS[-1], apart=True))
ARMS = ("agentcho", "deterministic", "stock")


@alone
def step(engine: Any, context: int, repeats: int, seed: int, tell: ProgressCallback = no_progress) -> list[Figures]:
    """Figures of `KINDS`, arms `ARMS`, in "seconds" per step. A warm-up comes first. Stock rows take the same time
    whichever messages they read."""
    from agentcho.lab.bench.peers.generate import stock_attention
    from tools.bench.stock import StockRows

    told = tokens_of(engine, context, seed)
    steps = (repeats + 1) * STEPS
    ours = {kind: OurRows(engine.adapted(None), told, kind, steps) for kind in KINDS}
    exact = {kind: OurRows(engine.adapted(None), told, kind, steps, deterministic=True) for kind in KINDS}
    with stock_attention(engine.network):
        stock = {kind: StockRows(engine.network, ours[kind].context, kind.rows) for kind in KINDS if not kind.apart}

    def take_ours() -> dict[tuple[str, str], float]:
        return {("agentcho", kind.name): rows.step() for kind, rows in ours.items()}

    def take_exact() -> dict[tuple[str, str], float]:
        return {("deterministic", kind.name): rows.step() for kind, rows in exact.items()}

    def take_stock() -> dict[tuple[str, str], float]:
        with stock_attention(engine.network):
            return {("stock", kind.name): rows.step() for kind, rows in stock.items()}

    found: list[dict[tuple[str, str], float]] = []
    for number in range(repeats + 1):
        tell("repeats", number, repeats + 1)
        found.append(_repeat(number, take_ours, take_exact, take_stock))
    del found[0]
    return [
        Figures(subject=name, arm=arm, values={"seconds": tuple(one[arm, name] for one in found)})
        for name in (kind.name for kind in KINDS)
        for arm in ARMS
        if (arm, name) in found[0]
    ]


Takes = Callable[[], Mapping[tuple[str, str], float]]


def _repeat(number: int, *arms: Takes) -> dict[tuple[str, str], float]:
    """The medians of `STEPS` steps of all arms, which take turns in going first."""
    found: dict[tuple[str, str], list[float]] = {}
    for turn in range(STEPS):
        for take in turns(arms, number + turn):
            for what, seconds in take().items():
                found.setdefault(what, []).append(seconds)
    return {what: median(seconds) for what, seconds in found.items()}


def tokens_of(engine: Any, count: int, seed: int) -> tuple[int, ...]:
    """`count` content ids of random words."""
    return tuple(engine.framing.content.encode(random_words(random.Random(seed), count))[:count])


class OurRows:
    """Rows that decode forced words over messages of known tokens, with nothing else on the engine. `context` are the
    token ids that the first row attends to, its own first ids included. At most `steps` steps. As a context manager it
    leaves the engine as it was."""

    def __init__(self, engine: Any, told: tuple[int, ...], kind: Kind, steps: int, deterministic: bool = False) -> None:
        self._engine, self._deterministic = engine, deterministic
        messages = [Prefill("", tokens=told[k:] + told[:k]) for k in range(kind.rows if kind.apart else 1)]
        self._read = read = self._engine.prefill(messages)
        forced = tuple(told[place % len(told)] for place in range(steps + 2))
        self._calls = self._engine.submit(
            [Decode(parents=[read[k % len(read)]], forced=forced) for k in range(kind.rows)]
        )
        self._engine.step(deterministic)
        framing = self._engine.framing
        start = framing.begin
        words = self._engine.message(read[0]).tokens
        self.context: tuple[int, ...] = (*start, *words, *framing.opening("assistant", None))

    def __enter__(self) -> OurRows:
        return self

    def __exit__(self, *raised: object) -> None:
        self._engine.cancel(self._calls)
        self._engine.release(self._read)

    def step(self) -> float:
        """Seconds of one step of the engine."""
        began = perf_counter()
        self._engine.step(self._deterministic)
        return perf_counter() - began
