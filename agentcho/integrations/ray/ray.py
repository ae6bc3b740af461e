"""Runs workers as actors of a Ray cluster. The only module that imports Ray.

Ray's own restarts and retries are off: the driver deals the games of a dead worker again. Tried with Ray 2.60.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from agentcho.errors import WorkersLost
from agentcho.extras import require
from agentcho.integrations.ray.config import ClusterConfig
from agentcho.integrations.ray.packaging import pack
from agentcho.integrations.ray.work import Answer, WorkerLost
from agentcho.integrations.ray.worker import Worker

REACH, HEALTHY, FETCH = 10.0, 30.0, 60.0
"""Time limits in seconds: for a head node to accept a connection, for its health check, and for fetching an answer that
is ready."""
STORE = 256 << 20
"""Size in bytes of the object store of a cluster that is made here."""
QUIET = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""Settings that keep a cluster that is made here on loopback and turn off its usage statistics."""


class Placement(NamedTuple):
    """The number of workers, and what each takes of its machine."""

    workers: int
    cpus: int
    gpus: float


class Machine(NamedTuple):
    """The resources of a machine of the cluster."""

    cpus: float
    gpus: float


def placed(machines: Sequence[Machine], asked: ClusterConfig, device: str, threads: int | None) -> Placement:
    """Place the requested workers, each with as many threads as there is room for, or with `threads`. `WorkersLost`:
    the machines have no room for them."""
    some = any(machine.gpus >= 1 for machine in machines)
    gpus = asked.gpus_per_worker
    if gpus is None:
        gpus = 1.0 if some and device.partition(":")[0] in ("auto", "cuda") else 0.0
    fits = (
        sum(int(machine.gpus / gpus) for machine in machines)
        if gpus
        else sum(machine.cpus >= 1 for machine in machines)
    )
    workers = asked.workers or max(1, fits)
    most = int(max((machine.cpus for machine in machines), default=0))
    for cpus in [threads] if threads else range(most, 0, -1):
        if _room(machines, cpus, gpus) >= workers:
            return Placement(workers, cpus, gpus)
    cpus = threads or 1
    there = f"it has {sum(m.cpus for m in machines):g} processor cores and {sum(m.gpus for m in machines):g} GPUs"
    what = f"{workers} workers, each of {cpus} cores and {gpus:g} GPUs"
    raise WorkersLost(f"the cluster has no room for {what}: {there}; lower --workers or --gpus-per-worker")


def _room(machines: Sequence[Machine], cpus: int, gpus: float) -> int:
    """How many workers of this size the machines have room for."""
    return sum(int(min(m.cpus / cpus, m.gpus / gpus if gpus else m.cpus)) for m in machines)


@contextmanager
def workers(asked: ClusterConfig, scenario: str, device: str) -> Iterator[tuple[RayPool, int, str]]:
    """Yields a pool of workers on the requested cluster, their number, and the name by which they find the scenario. At
    the end the workers are stopped, and a cluster that was made here is shut down.

    `ExtraMissing`: Ray is not installed. `WorkersLost`: the cluster does not answer, or has no room.
    """
    require("to play on a cluster", "ray")
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    ray: Any = importlib.import_module("ray")
    with tempfile.TemporaryDirectory(prefix="agentcho-") as folder:
        name = pack(scenario, Path(folder))
        _connect(ray, asked.address or os.environ.get("RAY_ADDRESS"), folder)
        try:
            threads = os.environ.get("OMP_NUM_THREADS", "")
            placement = placed(_machines(ray), asked, device, int(threads) if threads.isdecimal() else None)
            yield RayPool(ray, placement), placement.workers, name
        finally:
            ray.shutdown()


def _connect(ray: Any, address: str | None, folder: str) -> None:
    """Join a cluster, or make one. Signal handlers that Ray installs are removed again."""
    how: dict[str, Any] = {"address": address}
    if address is None:
        how = {"address": "local", "include_dashboard": False, "object_store_memory": STORE}
        how["_node_ip_address"] = "127.0.0.1"
    elif address != "auto":
        _check_reachable(address)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        ray.init(**how, runtime_env={"working_dir": folder}, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises many kinds, RuntimeError among them
        ray.shutdown()
        raise WorkersLost(f"no Ray cluster at {address or 'this machine'}: {_first_line(error)}") from error
    finally:
        for number, handler in before.items():
            with suppress(ValueError):  # not in the main thread
                signal.signal(number, handler)


def _check_reachable(address: str) -> None:
    """`WorkersLost`: no head node answers in time. Without this check `ray.init` would keep trying for long."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH).close()
        command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
        asked = subprocess.run(command, capture_output=True, timeout=HEALTHY, check=False)
        why = "it is not the head node of a Ray cluster of this version, or it requires a token (RAY_AUTH_MODE)"
    except (OSError, OverflowError, ValueError) as error:
        raise WorkersLost(f"no Ray cluster at {address}: {error}; start one with `ray start --head`") from None
    except subprocess.TimeoutExpired:
        raise WorkersLost(f"no Ray cluster at {address}: it does not answer within {HEALTHY:g} s") from None
    if asked.returncode != 0:
        raise WorkersLost(f"no Ray cluster at {address}: {why}")


def _machines(ray: Any) -> list[Machine]:
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [Machine(has.get("CPU", 0), has.get("GPU", 0)) for has in alive]


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


class RayPool:
    """A `WorkerPool` of Ray actors."""

    def __init__(self, ray: Any, placement: Placement) -> None:
        self._ray = ray
        environment = {"env_vars": {"OMP_NUM_THREADS": str(placement.cpus)}}
        self._actor = ray.remote(Worker).options(
            num_cpus=placement.cpus,
            num_gpus=placement.gpus,
            max_restarts=0,
            max_task_retries=0,
            runtime_env=environment,
        )
        self._actors: dict[int, Any] = {}
        self._calls: dict[Any, int] = {}
        self._started = 0

    def start(self) -> int:
        self._started += 1
        self._actors[self._started] = self._actor.remote()
        return self._started

    def call(self, worker: int, method: str, *given: Any) -> None:
        self._calls[getattr(self._actors[worker], method).remote(*given)] = worker

    def answers(self, seconds: float) -> list[tuple[int, Answer]]:
        calls = list(self._calls)
        ready, _ = self._ray.wait(calls, num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0)
        return [(self._calls.pop(call), self._answer(call)) for call in ready]

    def _answer(self, call: Any) -> Answer:
        try:
            answer: Answer = self._ray.get(call, timeout=FETCH)
        except self._ray.exceptions.RayError as error:
            return WorkerLost(_why(error))
        return answer

    def stop(self, worker: int) -> None:
        self._calls = {call: id for call, id in self._calls.items() if id != worker}
        if (actor := self._actors.pop(worker, None)) is not None:
            with suppress(Exception):  # it or its machine is gone already
                self._ray.kill(actor)


def _why(error: BaseException) -> str:
    """Why a worker is gone, in one line."""
    known: Mapping[str, str] = {
        "ActorUnavailableError": "it cannot be reached",
        "NodeDiedError": "its machine died",
        "OutOfMemoryError": "its machine had no memory left",
    }
    if (name := type(error).__name__) in known:
        return known[name]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if name == "ActorDiedError" and not any("Traceback" in line or "Error:" in line for line in lines):
        return "it died"
    errors = [line for line in lines if "Error: " in line]
    return (errors or lines or [name])[-1]
