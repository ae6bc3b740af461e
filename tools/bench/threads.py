"""How long a whole game takes as a command on a machine whose cores are busy with something else: on the number of
compute threads that agentcho chooses, on one, and on all, in turns.

Threads of a small network wait for each other longer than they compute, and much longer if another process occupies
their cores.
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
"""The code that occupies a core."""
SAID = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that would set the number of threads in every arm."""
Play = Callable[[Sequence[str]], float]
"""Plays with these options, and returns the seconds that it took."""


class Times(NamedTuple):
    """Seconds by arm, one value per turn, and the number of busy cores."""

    seconds: Mapping[str, Sequence[float]]
    busy: int

    def ratios(self, arm: str) -> list[float]:
        """How many times as long an arm took as one thread, for each turn."""
        return [a / b for a, b in zip(self.seconds[arm], self.seconds[ONE], strict=True)]

    def lines(self) -> list[str]:
        """A line per arm: its seconds, and its ratio to one thread in the same turn, each as median, minimum and
        maximum."""
        told = [
            f"{self.busy} cores busy with another process; median (least to most) of {len(self.seconds[ONE])} turns"
        ]
        for arm, seconds in self.seconds.items():
            beside = "" if arm == ONE else f"; times one thread: {_spread(self.ratios(arm))}"
            told.append(f"{arm:8} {_spread(seconds)} s{beside}")
        return told


def measure(arms: Mapping[str, Sequence[str]], play: Play, repeats: int, busy: int, tell: ProgressCallback) -> Times:
    """Play every arm once per turn. Each turn begins with another arm.

    Args:
        arms: the options of each.
        play: plays with these.
        repeats: the number of turns.
        busy: how many cores other processes keep busy meanwhile.
        tell: is told how many plays are over.
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
    """A context in which other processes keep this many cores busy."""
    others = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(cores)]
    try:
        yield others
    finally:
        for other in others:
            other.kill()
            other.wait()


def of_machine() -> dict[str, Sequence[str]]:
    """The arms on this machine, as options of `agentcho run`."""
    return {DEFAULT: (), ONE: ("--threads", "1"), ALL: ("--threads", str(os.cpu_count() or 1))}


def playing(scenario: str, model: str, tokens: int) -> Play:
    """`agentcho run` as a separate process. `SystemExit`: it failed."""
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
