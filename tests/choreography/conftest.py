"""Both event loops, and a tiny real engine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import torch

from agentcho import Engine
from tests.engine.families import families

from .stage import Clock, Play, Work

BACKENDS = ("asyncio", "trio")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny matrices: threads would only get in each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=BACKENDS)
def play(request: pytest.FixtureRequest) -> Play:
    """Runs a coroutine function on one of the two event loops; what is stuck fails."""

    async def guarded(work: Work) -> Any:
        with anyio.fail_after(20):
            return await work()

    return lambda work: anyio.run(guarded, work, backend=request.param)


@pytest.fixture(params=BACKENDS)
def clock(request: pytest.FixtureRequest) -> Clock:
    """One of the two event loops, under a clock of the test's own."""
    return Clock(request.param)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A tiny random Llama, with BOS."""
    folder: Path = tmp_path_factory.mktemp("tiny")
    next(family for family in families() if family.name == "llama").save(folder)
    return Engine.load(folder, device="cpu", dtype="float32", store_tokens=1 << 15)
