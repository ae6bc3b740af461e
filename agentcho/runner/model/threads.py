"""Chooses how many CPU threads compute the forwards of one model.

Threads of a small network wait for each other longer than they compute. They spin while they wait, so that on a busy
machine a step takes ten times as long on all cores as on one. The user's choice takes precedence: `OMP_NUM_THREADS`,
`MKL_NUM_THREADS`, `torch.set_num_threads`, or a number given to `Engine.load`. Otherwise a small network takes one
thread, and for any other a few forwards are timed. Independent of models and calls.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Literal, get_args

import torch

from agentcho.errors import ModelError

ENGINE = logging.getLogger("agentcho.engine")
Unnumbered = Literal["auto", "size"]
Wish = int | Unnumbered
"""A number of threads; "auto": by the network's size, or by timing if that does not decide; "size": by size only, so
that one machine always makes the same choice."""
SMALL = 32 << 20
"""The size of the weights in bytes up to which one thread is enough."""
TRIES, SECONDS = 5, 2.0
"""At most `TRIES` forwards are timed for each number of threads, and no more once they took `SECONDS` in total."""
CLEARLY = 0.9
"""One thread is used if its forward takes at most this share of the time on all threads."""
WINDOW, SLOWER = 32, 4.0
"""The number is chosen again if the median time of the last `WINDOW` steps is more than `SLOWER` times the smallest
such median."""
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


class ComputeThreads:
    """The compute threads of one network; engines on it share this object. `number` is None if torch's own setting is
    left alone: before `settle`, on a GPU, and if the user has set it. `why`: the reason, in words."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.why = "not chosen yet"
        self.watched = False
        self._most = 1
        self._forward: Callable[[], object] | None = None
        self._recent, self._least = list[float](), float("inf")

    @property
    def count(self) -> int:
        """The number of threads: the chosen one, or torch's own."""
        return torch.get_num_threads() if self.number is None else self.number

    def settle(self, wish: Wish, weights: int, forward: Callable[[], object]) -> None:
        """Choose the number for a network on a CPU.

        Args:
            wish: A number, which is taken, or how to choose one.
            weights: The size of all weights in bytes.
            forward: Runs one forward of one token. It is kept, to choose again later.
        """
        self._most, self._forward = torch.get_num_threads(), forward
        size = f"{weights / 2**20:.0f} MiB"
        if isinstance(wish, int):
            self.number, self.why = wish, "as asked for"
        elif (said := said_by_user()) is not None:
            self.why = f"as {said} says"
        elif self._most == 1:
            self.why = "torch has no more"
        elif weights <= SMALL:
            self.number, self.why = 1, f"for {size} of weights, as threads would wait for each other"
        elif wish == "size":
            self.number, self.why = self._most, f"all, for {size} of weights"
        else:
            self._time()
            self.watched = True

    @contextmanager
    def using(self) -> Iterator[None]:
        """A context in which this thread computes with the chosen number of threads. Afterwards the previous number is
        restored, so that other code of the process keeps its own. A thread that calls torch for the first time
        meanwhile takes the number that is set then."""
        before = torch.get_num_threads()
        if self.number in (None, before):
            yield
            return
        assert self.number is not None
        torch.set_num_threads(self.number)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def took(self, seconds: float) -> None:
        """Record the time of a step, and choose again if steps have become much slower."""
        self._recent.append(seconds)
        if len(self._recent) < WINDOW:
            return
        now = median(self._recent)
        self._recent.clear()
        if now > SLOWER * self._least:
            self._least, before = now, self.number
            self._time()
            ENGINE.info("steps became much slower: threads %s, before %s (%s)", self.number, before, self.why)
        self._least = min(self._least, now)

    def keep(self) -> None:
        """Keep the number from now on, however long steps take: bits depend on it."""
        self.watched = False

    def _time(self) -> None:
        """Time forwards on one thread and on all, alternately, and take the better number."""
        assert self._forward is not None
        before, took = torch.get_num_threads(), {1: list[float](), self._most: list[float]()}
        try:
            for turn in range(TRIES + 1):
                for number, times in took.items():
                    torch.set_num_threads(number)
                    began = perf_counter()
                    self._forward()
                    times.append(perf_counter() - began)
                if turn and sum(map(sum, took.values())) > SECONDS:
                    break
        finally:
            torch.set_num_threads(before)
        one, all_ = (median(times[1:]) for times in took.values())  # the first forward of each is a warm-up
        self.number = 1 if one <= CLEARLY * all_ else self._most
        self.why = f"a step takes {1e3 * one:.3g} ms on one, {1e3 * all_:.3g} ms on {self._most}"


def said_by_user() -> str | None:
    """Where the user has set torch's number of threads, or None. A call of `torch.set_num_threads` is inferred from a
    number that torch never chooses by itself: more than the cores, or less than half of them."""
    for name in VARIABLES:
        if os.environ.get(name, "").strip():
            return name
    known = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    number = torch.get_num_threads()
    return None if cores <= 2 * number <= 2 * cores else "torch.set_num_threads"


def check_threads(wish: object) -> None:
    """Raise `ModelError` if this is neither a number of threads nor a way to choose one."""
    if wish in get_args(Unnumbered) or (isinstance(wish, int) and not isinstance(wish, bool) and wish >= 1):
        return
    raise ModelError(f"threads={wish!r} is not a number of threads; give 1 or more, 'auto' or 'size'")
