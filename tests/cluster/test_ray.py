"""Real Ray clusters on loopback: two machines of one core each, whose workers and machines are killed."""

from __future__ import annotations

import importlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agentcho import RunConfig
from agentcho.config import Limits
from agentcho.errors import ModelNotFound, WorkersLost
from agentcho.events import Event, GameOver
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import RunResult, play
from agentcho.integrations.ray import ray as rays
from agentcho.integrations.ray import runs
from agentcho.integrations.ray.config import ClusterConfig
from agentcho.integrations.ray.driver import Driver
from agentcho.integrations.ray.runs import Players
from agentcho.records.record import SavedRun, find
from tests.cluster.processes import MARK, actors, kill, marked
from tests.cluster.test_driver import NAME, games, scenario

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
COMMAND = (sys.executable, "-c", "from agentcho.cli import main; main()")
SOON, LATE = 30.0, 120.0
HEALTH = {"period_ms": "1000", "timeout_ms": "2000", "failure_threshold": "3"}
TWO = ClusterConfig(on="ray", workers=2)
FAKE = RunConfig(model="fake", games=40, seed=3)


class Machines:
    """A cluster of two machines. `second` is the one that may be killed."""

    def __init__(self, mark: str) -> None:
        cluster: Any = importlib.import_module("ray.cluster_utils").Cluster

        self.mark = mark
        node = {"num_cpus": 1, "object_store_memory": 128 << 20, "include_dashboard": False}
        self._cluster = cluster(initialize_head=True, head_node_args=node)
        self.second = self._cluster.add_node(**{k: v for k, v in node.items() if k != "include_dashboard"})
        self._cluster.wait_for_nodes()
        self.asked = ClusterConfig(on=f"ray:{self._cluster.address}", workers=2)

    def lose_second(self) -> None:
        """Kills the second machine."""
        self._cluster.remove_node(self.second, allow_graceful=False)

    def close(self) -> None:
        self._cluster.shutdown()


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Marks the processes that a test starts, and checks that none is left."""
    found = uuid4().hex
    monkeypatch.setenv(MARK, found)
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name, value in HEALTH.items():
        monkeypatch.setenv(f"RAY_health_check_{name}", value)
    yield found
    wait_until(lambda: not {pid for pid, _ in marked(found)} - {os.getpid()}, "all have ended")


@pytest.fixture
def machines(mark: str) -> Iterator[Machines]:
    found = Machines(mark)
    try:
        yield found
    finally:
        found.close()


def wait_until(holds: Callable[[], bool], what: str, seconds: float = SOON) -> None:
    """Waits until a condition holds that other processes bring about."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def there(asked: ClusterConfig, out: Path, config: RunConfig, sink: Callable[[Event], None] | None = None) -> RunResult:
    """A run by the workers of a cluster."""
    with rays.workers(asked, NAME, "cpu") as (pool, count, name):
        assert count == 2
        driver = Driver(pool, count)
        return runs.play(Players(driver, name), RunRequest(scenario(NAME), config, out=out, named=NAME, sink=sink))


def after(count: int, strike: Callable[[], None]) -> Callable[[Event], None]:
    """A sink that calls `strike` once this many games are over."""
    over: list[Any] = []

    def hear(event: Event) -> None:
        if isinstance(event, GameOver):
            over.append(event)
            if len(over) == count:
                strike()

    return hear


def test_forty_games_by_two_machines_are_those_of_one_process_whoever_is_killed(
    machines: Machines, tmp_path: Path
) -> None:
    alone = games(play(RunRequest(scenario(NAME), FAKE, out=tmp_path / "alone", named=NAME)).record)
    assert games(there(machines.asked, tmp_path / "two", FAKE).record) == alone
    killed = after(5, lambda: kill(actors(machines.mark)[0]))
    assert games(there(machines.asked, tmp_path / "worker", FAKE, killed).record) == alone
    lost = after(5, machines.lose_second)
    assert games(there(machines.asked, tmp_path / "machine", FAKE, lost).record) == alone


@pytest.mark.slow
def test_forty_games_of_the_understudy_are_the_same_with_a_worker_and_a_machine_killed(
    machines: Machines, tmp_path: Path
) -> None:
    config = RunConfig(games=40, seed=3, max_tokens=8, deterministic=True, limits=Limits(game_messages=8))
    alone = games(play(RunRequest(scenario(NAME), config, out=tmp_path / "alone", named=NAME)).record)

    def strike() -> None:
        kill(actors(machines.mark)[0])

    worker, machine = after(6, strike), after(20, machines.lose_second)

    def both(event: Event) -> None:
        worker(event)
        machine(event)

    assert games(there(machines.asked, tmp_path / "two", config, both).record) == alone


def test_a_model_that_is_nowhere_and_a_cluster_without_room_are_one_error_each(mark: str, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no model '/no/where'.*the worker on "):
        there(TWO, tmp_path / "none", RunConfig(model="/no/where"))
    with pytest.raises(WorkersLost, match="no room for 99 workers, each of 1 cores and 0 GPUs"):
        there(TWO.model_copy(update={"workers": 99}), tmp_path / "none", FAKE)
    assert not (tmp_path / "none").exists()


def test_an_address_where_nobody_listens_is_an_error_at_once(mark: str, tmp_path: Path) -> None:
    with pytest.raises(WorkersLost, match=r"no Ray cluster at 127\.0\.0\.1:1: .*start one with `ray start --head`"):
        there(ClusterConfig(on="ray:127.0.0.1:1"), tmp_path, FAKE)


@pytest.mark.slow
def test_an_address_where_somebody_else_listens_is_an_error_within_a_bounded_time(mark: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        asked = ClusterConfig(on=f"ray:127.0.0.1:{other.getsockname()[1]}")
        with pytest.raises(WorkersLost, match="no Ray cluster at"):
            there(asked, tmp_path, FAKE)


@contextmanager
def command(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command in its own process group, as from a terminal."""
    with subprocess.Popen(
        [*COMMAND, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_is_interrupted_leaves_no_process_and_its_record_goes_on(
    mark: str, tmp_path: Path, number: int, code: int
) -> None:
    (tmp_path / "scenarios").mkdir()
    words = ("run", NAME, "--model", "fake", "--games", "3000", "--set", "rounds=1", "--on", "ray", "--workers", "2")
    with command(tmp_path, *words) as process:
        assert process.stdout is not None
        while not re.match(r"game \d+:", line := process.stdout.readline()):
            assert line, process.stderr and process.stderr.read()
        assert len(actors(mark)) == 2
        if number == signal.SIGINT:  # to the whole group, as from a terminal
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        told = process.communicate(timeout=LATE)
    assert process.returncode == code, told
    saved = find("last", tmp_path / "runs")
    assert saved.status == "interrupted"
    assert 0 < len(saved.finished()) < 3000
    assert "Traceback" not in told[1]


@pytest.mark.slow
def test_a_driver_that_is_killed_leaves_a_record_that_goes_on_and_no_process(mark: str, tmp_path: Path) -> None:
    words = ("run", NAME, "--model", "fake", "--games", "400", "--set", "rounds=1", "--on", "ray", "--workers", "2")
    with command(tmp_path, *words) as process:
        assert process.stdout is not None
        while not re.match(r"game \d+:", line := process.stdout.readline()):
            assert line
        process.kill()
    wait_until(lambda: not [*marked(mark)], "all have ended", LATE)
    saved = find("last", tmp_path / "runs")
    assert saved.status == "died"
    kept = saved.finished()
    again = ("run", "--resume", "last", "--on", "ray", "--workers", "2", "--display", "none")
    ended = subprocess.run([*COMMAND, *again], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    whole = SavedRun(saved.path)
    assert sorted(whole.finished()) == [*range(400)]
    assert {number: over for number, over in whole.finished().items() if number in kept} == kept
    lines = (saved.path / "outcomes.jsonl").read_text().count("\n")
    assert lines == 400, "each game is there once"
