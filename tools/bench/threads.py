"""How long a whole game takes as a command, on a machine whose cores are busy with something else: on as many compute
threads as agentcho chooses, on one, and on all, in turns.

Threads of a small network wait for each other longer than they compute, and wait much longer where another process has
their cores. Does not know: how threads are chosen.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

from agentcho.protocol.progress import ProgressCallback, counted

DEFAULT, ONE, ALL = "default", "one", "all"
SPIN = "while True: pass"
"""What another process does on a core."""
SAID = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that would say the number of threads in every arm."""
Play = Callable[[Sequence[str]], float]
"""Plays with these options, and returns the seconds that it took."""


class Times(NamedTuple):
    """Seconds by arm, one number each turn, and how many cores were busy."""

    seconds: Mapping[str, Sequence[float]]
    busy: int

    def ratios(self, arm: str) -> list[float]:
        """Of each turn, how many times as long an arm took as one thread."""
        return [a / b for a, b in zip(self.seconds[arm], self.seconds[ONE], strict=True)]

    def lines(self) -> list[str]:
        """A line an arm: its seconds, and its ratio to one thread in the same turn, each as median, least and most."""
        told = [
            f"{self.busy} cores busy with another process; median (least to most) of {len(self.seconds[ONE])} turns"
        ]
        for arm, seconds in self.seconds.items():
            beside = "" if arm == ONE else f"; times one thread: {_spread(self.ratios(arm))}"
            told.append(f"{arm:8} {_spread(seconds)} s{beside}")
        return told


def measure(arms: Mapping[str, Sequence[str]], play: Play, repeats: int, busy: int, tell: ProgressCallback) -> Times:
    """Play every arm once a turn, each turn beginning with another one.

    Args:
        arms: the options of each.
        play: plays with these.
        repeats: how many turns.
        busy: how many cores another process keeps busy meanwhile.
        tell: hears how many plays are over.
    """
    seconds: dict[str, list[float]] = {arm: [] for arm in arms}
    names, told = list(arms), counted(tell, "plays", repeats * len(arms))
    with occupied(busy):
        for turn in range(repeats):
            first = turn % len(names)
            for arm in names[first:] + names[:first]:
                seconds[arm].append(play(arms[arm]))
                told(sum(map(len, seconds.values())))
    return Times(seconds, busy)


@contextmanager
def occupied(cores: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A context in which other processes compute on so many cores."""
    others = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(cores)]
    try:
        yield others
    finally:
        for other in others:
            other.kill()
            other.wait()


def of_machine() -> dict[str, Sequence[str]]:
    """The arms here, by the options of `agentcho run`."""
    return {DEFAULT: (), ONE: ("--threads", "1"), ALL: ("--threads", str(os.cpu_count() or 1))}


def playing(scenario: str, model: str, tokens: int) -> Play:
    """`agentcho run` as a process of its own. `SystemExit`: it failed."""
    command = (sys.executable, "-m", "agentcho", "run", scenario, "--model", model, "--max-tokens", str(tokens))
    environment = {name: value for name, value in os.environ.items() if name not in SAID}

    def play(options: Sequence[str]) -> float:
        with TemporaryDirectory() as folder:
            began = perf_counter()
            words = (*command, "--out", str(Path(folder)), *options)
            ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
            took = perf_counter() - began
        if ran.returncode:
            raise SystemExit(f"{' '.join(words)}: {ran.stderr.strip()}")
        return took

    return play


def _spread(numbers: Sequence[float]) -> str:
    return f"{median(numbers):.3g} ({min(numbers):.3g} to {max(numbers):.3g})"
