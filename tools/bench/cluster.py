"""Measures games played by two workers of a Ray cluster on this machine, compared with two plain processes that each
play half of them; and the driver's overhead for many short games.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, NamedTuple

from agentcho.config import RunConfig
from agentcho.events import Event, GameOver
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.integrations.ray import runs
from agentcho.integrations.ray.config import ClusterConfig
from agentcho.integrations.ray.driver import Driver
from agentcho.integrations.ray.ray import workers
from agentcho.integrations.ray.runs import Players
from agentcho.protocol.progress import ProgressCallback
from agentcho.scenario import Scenario

NAME, TWO = "prisoners-dilemma", 2
PLAIN = """
import sys
from pathlib import Path
from time import perf_counter
from agentcho.config import RunConfig
from agentcho.games.runs import library, runtime

config = RunConfig.model_validate_json(sys.argv[1])
scenario, engine = library.scenario("prisoners-dilemma")(), runtime.load_engine(config)
warm = config.model_copy(update={"games": 1, "part": None})
runtime.play(scenario, warm, engine=engine)
print("ready", flush=True)
sys.stdin.readline()
began = perf_counter()
runtime.play(scenario, config, engine=engine, out=Path(sys.argv[2]))
print(perf_counter() - began, flush=True)
"""
"""A process that plays its part on a signal, and prints how long that took."""


class Pace(NamedTuple):
    """Seconds for the same games with two workers and with two plain processes, one value a repeat."""

    workers: tuple[float, ...]
    plain: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The workers' rate as a share of the plain processes' rate, from the medians of the repeats."""
        return median(self.plain) / median(self.workers)


class Overhead(NamedTuple):
    """For many short games: CPU seconds of the driver and of its workers together, and the driver's memory in MiB after
    a tenth of them and at the end."""

    games: int
    driver: float
    workers: float
    early: float
    late: float

    @property
    def share(self) -> float:
        """The driver's CPU time as a share of all workers' CPU time."""
        return self.driver / self.workers


def pace(games: int, repeats: int, seed: int, tell: ProgressCallback) -> Pace:
    """Play the same games of the understudy in turns. Loading comes first; each process has one thread."""
    config = RunConfig(games=games, seed=seed, max_tokens=32)
    scenario, found = library.scenario(NAME)(), Pace((), ())
    for number in range(repeats):
        tell("repeats (two workers, two processes)", number, repeats)
        with _driver("cpu") as players, TemporaryDirectory() as folder:
            runs.play(players, RunRequest(scenario, config.model_copy(update={"games": 4 * TWO})))  # all have loaded
            began = perf_counter()
            runs.play(players, RunRequest(scenario, config, out=Path(folder)))
            theirs = perf_counter() - began
        found = Pace((*found.workers, theirs), (*found.plain, _plain(config)))
    return found


def _plain(config: RunConfig) -> float:
    """Seconds until the last of two processes ends, which begin together."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        started = list[Any]()
        for part in range(1, TWO + 1):
            mine = config.model_copy(update={"part": f"{part}/{TWO}"}).model_dump_json()
            command = [sys.executable, "-c", PLAIN, mine, folder]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            started.append(stack.enter_context(subprocess.Popen(command, env=environment, **pipes)))
        for process in started:
            assert process.stdout.readline() == "ready\n"
        for process in started:
            process.stdin.write("go\n")
            process.stdin.flush()
        return max(float(process.stdout.readline()) for process in started)


def overhead(games: int, seed: int, tell: ProgressCallback) -> Overhead:
    """Play short games on the fake engine, and measure the cost. Linux only."""
    scenario: Scenario = library.scenario(NAME)(rounds=1)
    config, over, memory = RunConfig(model="fake", games=games, seed=seed), list[int](), list[float]()

    def hear(event: Event) -> None:
        if isinstance(event, GameOver):
            over.append(event.game)
            tell("short games", len(over), games)
            if len(over) in (games // 10, games):
                memory.append(_memory())

    with _driver("cpu") as players, TemporaryDirectory() as folder:
        runs.play(players, RunRequest(scenario, config.model_copy(update={"games": 10 * TWO})))
        pids = [hello.process for hello in players.driver.hellos]
        began, before = process_time(), sum(map(_processor, pids))
        runs.play(players, RunRequest(scenario, config, out=Path(folder), sink=hear))
        return Overhead(games, process_time() - began, sum(map(_processor, pids)) - before, memory[0], memory[-1])


@contextmanager
def _driver(device: str) -> Iterator[Players]:
    os.environ["OMP_NUM_THREADS"] = "1"
    with workers(ClusterConfig(on="ray", workers=TWO), NAME, device) as (pool, count, name):
        yield Players(Driver(pool, count), name, "games")


def _processor(pid: int) -> float:
    """CPU seconds used by a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory() -> float:
    """MiB of memory used by this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
