"""The time of steps and prefills, compared with the minimum time for their bytes and operations on this machine.

The machine is measured in turns with the engine, in one thread.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from agentcho.lab.bench.result import Figures
from agentcho.lab.timing import alone
from agentcho.protocol.call import Prefill
from agentcho.protocol.progress import ProgressCallback
from tools.bench.step import KINDS, STEPS, Kind, OurRows, tokens_of

PREFILLS = (128, 512)
MACHINE = "machine"


class Forward(NamedTuple):
    """One kind of forward: new tokens per row, rows, and cached tokens per row."""

    name: str
    tokens: int
    rows: Kind
    context: int


@alone
def roofline(engine: Any, context: int, repeats: int, seed: int, tell: ProgressCallback) -> list[Figures]:
    """Figures of the machine ("bytes" and "operations" per second) and of each forward: "seconds" taken, "bytes" and
    "operations" needed, "least" seconds for these at the machine's rates of the same repeat, and "reached" = least over
    taken. A warm-up comes first."""
    from tools.bench.rates import rates, work

    told = tokens_of(engine, context, seed)
    rows = {kind: OurRows(engine.adapted(None), told, kind, (repeats + 1) * STEPS) for kind in KINDS}
    seen = len(rows[KINDS[0]].context)
    kinds = [Forward(f"decode, {kind.name}", 1, kind, seen) for kind in KINDS]
    kinds += [Forward(f"prefill, {count} tokens", count, Kind(1), 0) for count in PREFILLS]
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in (MACHINE, *(kind.name for kind in kinds))}
    for number in range(repeats + 1):
        tell("repeats", number, repeats + 1)
        able = rates(engine.network)
        found = {MACHINE: {"bytes": able.bytes, "operations": able.operations}}
        for kind in kinds:
            seconds = _seconds(engine, kind, rows, seed + number)
            needed = work(engine.network, kind.tokens, kind.rows.rows, kind.context, kind.rows.apart)
            least = needed.least(able)
            found[kind.name] = {"seconds": seconds, "least": least, "reached": least / seconds} | needed._asdict()
        for name in taken if number else ():
            taken[name].append(found[name])
    return [Figures.of(name, MACHINE if name == MACHINE else "agentcho", many) for name, many in taken.items()]


def _seconds(engine: Any, kind: Forward, rows: dict[Kind, OurRows], seed: int) -> float:
    if kind.tokens == 1:
        return median(rows[kind.rows].step() for _ in range(STEPS))
    return _prefill(engine, tokens_of(engine, kind.tokens, 1000 * seed + kind.tokens))


def _prefill(engine: Any, tokens: tuple[int, ...]) -> float:
    """The seconds of one prefill of these tokens, framing included."""
    framing = engine.framing
    framed = len(framing.opening("user", None)) + len(framing.closing("user"))
    began = perf_counter()
    (id,) = engine.prefill([Prefill("", tokens=tokens[: len(tokens) - framed])])
    seconds = perf_counter() - began
    engine.release([id])
    return seconds
