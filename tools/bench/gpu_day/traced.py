"""Profiles what the device does in a step: its kernels, the gaps between them, and where Python waits for it."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch
from torch.profiler import ProfilerActivity
from torch.profiler import profile as profiler

from tools.bench.gpu_day.day import Day
from tools.bench.step import Kind, OurRows, tokens_of

STEPS, TAIL = 5, 64
MOST = 25
"""The number of kernels that are named."""


@contextmanager
def counting_replays() -> Iterator[list[int]]:
    """A context that counts replays of CUDA graphs, in the only element of the list."""
    count, real = [0], torch.cuda.CUDAGraph.replay

    def replay(graph: torch.cuda.CUDAGraph) -> None:
        count[0] += 1
        real(graph)

    torch.cuda.CUDAGraph.replay = replay  # type: ignore[assignment,method-assign]
    try:
        yield count
    finally:
        torch.cuda.CUDAGraph.replay = real  # type: ignore[method-assign]


def profile(day: Day) -> None:
    """For a step with one row and with the most rows, replayed and eager, and for a first token: kernels, seconds in
    which the device is busy and idle, and the kernels that take longest."""
    from tools.bench.gpu_day.steps import WARM, eager

    context = day.sizes.contexts[0]
    for rows in (day.sizes.rows[0], day.sizes.rows[-1]):
        told = tokens_of(day.engine, context, day.asked.seed)
        with OurRows(day.engine, told, Kind(rows), WARM + 4 * STEPS) as ours:
            for _ in range(WARM):
                ours.step()
            day.keep(f"{Kind(rows).name}, replayed", _profiled(ours.step))
            with eager(day.engine):
                ours.step()
                day.keep(f"{Kind(rows).name}, eager", _profiled(ours.step))
    _first(day)


def _first(day: Day) -> None:
    """For a tail of 64 tokens over encoded messages, everything before its first token."""
    from agentcho.protocol.call import Decode, Prefill

    engine, sizes = day.engine, day.sizes
    tokens = tokens_of(engine, sizes.cached // sizes.messages, day.asked.seed)
    told = engine.prefill([Prefill("", tokens=tokens[k:] + tokens[:k]) for k in range(sizes.messages)])

    def begin() -> None:
        ids = engine.submit([Decode(parents=told, opening=tokens[:TAIL], forced=tokens[:2])])
        while not engine.step().spoken:
            pass
        engine.cancel(ids)

    begin()
    day.keep("first token", _profiled(begin, 1))
    engine.release(told)


def _profiled(work: Callable[[], object], times: int = STEPS) -> dict[str, Any]:
    """The profile per run, averaged over several."""
    cuda: Any = torch.cuda
    on_gpu = cuda.is_initialized()
    wanted = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profiler(activities=wanted) as found:
        began = perf_counter()
        for _ in range(times):
            work()
        whole = perf_counter() - began
    events = [event for event in found.events() or () if _counts(event, on_gpu)]
    spans = sorted((event.time_range.start, event.time_range.end) for event in events)
    busy, reached = 0.0, 0.0
    for begin, end in spans:
        busy += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    taken = Counter[str]()
    for event in events:
        taken[event.name] += event.time_range.end - event.time_range.start
    longest = {name[:100]: time / 1e6 / times for name, time in taken.most_common(MOST)}
    seconds = whole / times
    return {
        "kernels": len(events) / times,
        "seconds": seconds,
        "busy": busy / 1e6 / times,
        "gaps": max(0.0, seconds - busy / 1e6 / times),
        "longest": longest,
    }


def _counts(event: Any, on_gpu: bool) -> bool:
    """Whether an event is a kernel; on a CPU, an operation without a parent operation."""
    if on_gpu:
        return bool(event.device_type.name == "CUDA")
    return event.cpu_parent is None and event.name.startswith("aten::")


def synchronisation(day: Day) -> None:
    """Where Python waits for the device in five steps of many rows, and in a prefill, according to torch's own
    warnings."""
    from tools.bench.gpu_day.steps import WARM

    told = tokens_of(day.engine, day.sizes.contexts[0], day.asked.seed)
    with OurRows(day.engine, told, Kind(day.sizes.rows[1]), WARM + 2 * STEPS) as ours:
        for _ in range(WARM):
            ours.step()
        with _waits() as steps:
            for _ in range(STEPS):
                ours.step()
    day.keep("steps", {"count": STEPS, "waits": steps})
    with _waits() as prefill:
        day.engine.release([day.engine.prefill(_fresh(day))])
    day.keep("prefill", {"waits": prefill})


def _fresh(day: Day) -> Any:
    from agentcho.protocol.call import Prefill

    return Prefill("", tokens=tokens_of(day.engine, 200, day.asked.seed + 77))


@contextmanager
def _waits() -> Iterator[dict[str, int]]:
    """How often Python waited, by place in the code."""
    found = dict[str, int]()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode("default")
    found |= Counter(f"{each.filename.rpartition('/')[2]}:{each.lineno}" for each in told)
