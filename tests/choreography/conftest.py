"""Fixtures for both event loops, and a tiny real engine."""

from typing import Any

import anyio
import pytest

from agentcho import Engine
from tests.engines import Engines

from .stage import Clock, Play, Work

BACKENDS = ("asyncio", "trio")


@pytest.fixture(params=BACKENDS)
def play(request: pytest.FixtureRequest) -> Play:
    """Runs a coroutine function on one of the two event loops; fails after 20 seconds."""

    async def guarded(work: Work) -> Any:
        with anyio.fail_after(20):
            return await work()

    return lambda work: anyio.run(guarded, work, backend=request.param)


@pytest.fixture(params=BACKENDS)
def clock(request: pytest.FixtureRequest) -> Clock:
    """One of the two event loops, with a clock that the test controls."""
    return Clock(request.param)


@pytest.fixture(scope="session")
def tiny(engines: Engines) -> Engine:
    """A tiny random Llama, with BOS."""
    return engines(store_tokens=1 << 15)
