"""Both event loops, and a tiny real engine."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentcho import Engine
from tests.engine.families import families

Play = Callable[[Callable[[], Awaitable[Any]]], Any]


@pytest.fixture(params=["asyncio", "trio"])
def play(request: pytest.FixtureRequest) -> Play:
    """Runs a coroutine function on one of the two event loops."""
    return lambda work: anyio.run(work, backend=request.param)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A tiny random Llama whose template frames names."""
    folder: Path = tmp_path_factory.mktemp("tiny")
    next(family for family in families() if family.name == "llama").save(folder)
    return Engine.load(folder, device="cpu", dtype="float32", store_tokens=1 << 15)
