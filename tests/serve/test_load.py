"""A crowd of clients at a real server: nothing of it is left afterwards, and /health is never delayed."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import pytest

from agentcho.lab.bench.client import fed_tokens
from agentcho.lab.bench.servers import MAIN, free_port, running
from tests.serve.load import Crowd, mixed, quantile

FDS = Path("/proc/self/fd")
LIMITS = (
    "tenant_requests=256",
    "header_seconds=5",
    "body_seconds=5",
    "send_seconds=2",
    "society_tokens=1",
    "tenant_tokens=1",
)
"""Limits under which nothing unread is kept: whatever is still held at the end has leaked."""
ALIKE = 10
SOON = 20.0
"""Seconds until the last deadline of a client that keeps its connection open has passed."""
REFUSED = {"big": {"413", "cut"}, "deep": {"400"}}
TAKEN = {"200", "429", "503"}


class Running(NamedTuple):
    """A server in its own process."""

    port: int
    pid: int
    model: str

    @property
    def sockets(self) -> int:
        """The number of its open sockets."""
        links = (link.readlink() for link in Path(f"/proc/{self.pid}/fd").iterdir() if link.is_symlink())
        return sum(str(link).startswith("socket:") for link in links)


@contextmanager
def server(model: str, options: Sequence[str] = ()) -> Iterator[Running]:
    """A server that runs while the context lasts. `options` are further options of `agentcho serve`."""
    port = free_port()
    limits = [word for limit in LIMITS for word in ("--limit", limit)]
    words = ["serve", "--model", model, "--port", str(port), "--record", "none", *limits, *options]
    with running([sys.executable, "-c", MAIN, *words], port) as pid:
        yield Running(port, pid, model)


def gauges(text: bytes) -> dict[str, float]:
    """The current gauges from the metrics, by name."""
    found = re.findall(r"^agentcho_(running_requests|running_rows|store_share)\S* (\S+)$", text.decode(), re.MULTILINE)
    return {name: float(value) for name, value in found}


async def left(crowd: Crowd, of: Running) -> dict[str, float]:
    """The current numbers of requests, rows and sockets, and the used share of the store."""
    found = gauges((await crowd.get("/metrics"))[1]) | {"sockets": of.sockets}
    assert set(found) == {"running_requests", "running_rows", "store_share", "sockets"}
    return found


async def settled(crowd: Crowd, of: Running) -> dict[str, float]:
    """The same, once it is stable: resources of a request are freed after its answer."""
    found = list[dict[str, float]]()
    while len(found) < ALIKE or any(each != found[-1] for each in found[-ALIKE:]):
        found.append(await left(crowd, of))
        await asyncio.sleep(0.05)
    return found[-1]


def check(crowd: Crowd) -> None:
    """Every act ended in a permitted way, and each kind that can be answered was answered at least once."""
    for told in crowd.statuses:
        act, status = told.split(": ", 1)
        assert status in REFUSED.get(act, {"left", "held"} if act in ("abort", "slow", "half_open") else TAKEN), told
    for act in ("plain", "stream", "society"):
        assert crowd.statuses[f"{act}: 200"], crowd.statuses


def press(model: str, requests: int, at_once: int, *options: str) -> None:
    """Puts load on a server, and checks what is left."""

    async def body(of: Running) -> Crowd:
        crowd = Crowd(of.port, of.model)
        assert await crowd.post(crowd.chat(0)) == "200"
        before = await settled(crowd, of)
        assert fed_tokens(of.port), "what the model is fed is counted"
        assert before["running_rows"] == before["running_requests"] == 0
        await crowd.go(mixed(requests), at_once)
        until = monotonic() + SOON
        while (after := await left(crowd, of)) != before and monotonic() < until:
            await asyncio.sleep(0.05)
        assert after == before
        assert await crowd.post(crowd.chat(1)) == "200"
        return crowd

    with server(model, options) as of:
        crowd = asyncio.run(body(of))
    middle, high, most = (1000 * quantile(crowd.healths, share) for share in (0.5, 0.99, 1))
    print(f"/health, {len(crowd.healths)} times: median {middle:.1f} ms, p99 {high:.1f} ms, most {most:.1f} ms")
    print(dict(sorted(crowd.statuses.items())))
    check(crowd)
    assert high < 5000


@pytest.mark.server
@pytest.mark.skipif(not FDS.is_dir(), reason="this system does not tell what a process has open")
def test_a_crowd_leaves_nothing_behind() -> None:
    press("understudy", requests=120, at_once=40)


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.skipif(not FDS.is_dir(), reason="this system does not tell what a process has open")
@pytest.mark.parametrize("model", ["fake", "understudy"])
def test_a_great_crowd_leaves_nothing_behind(model: str) -> None:
    press(model, requests=2000, at_once=200)
