"""Measures first tokens over messages that are already encoded, with a new length for each tail."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from agentcho.protocol.call import Decode, Prefill
from tools.bench.gpu_day.day import Day
from tools.bench.step import tokens_of


def first(day: Day) -> None:
    """Seconds to the first token of each tail and to the second, and seconds of encoding the same messages anew."""
    engine, sizes = day.engine, day.sizes
    each = sizes.cached // sizes.messages
    messages = [tokens_of(engine, each, day.asked.seed + number) for number in range(sizes.messages)]
    began = perf_counter()
    told = engine.prefill([Prefill("", tokens=tokens) for tokens in messages])
    day.keep("afresh", {"seconds": perf_counter() - began, "tokens": sizes.cached})
    _timed(day, told, min(sizes.tails) - 1)
    for tail in sizes.tails:
        day.keep(f"a tail of {tail}", _timed(day, told, tail))
    engine.release(told)


def _timed(day: Day, told: list[int], tail: int) -> dict[str, Any]:
    engine = day.engine
    tokens = tokens_of(engine, tail, 1000 + tail)
    began, seconds = perf_counter(), list[float]()
    (id,) = engine.submit([Decode(parents=told, opening=tokens, forced=tokens[:3])])
    while len(seconds) < 2:
        result = engine.step()
        seconds += [perf_counter() - began for spoken in result.spoken if spoken.id == id]
    engine.cancel([id])
    return {"seconds": seconds[0], "second": seconds[1] - seconds[0]}
