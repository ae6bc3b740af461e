"""Both engines, the fake and a tiny real one, behind one face."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from agentcho import Engine
from agentcho.testing import FakeEngine
from tests.engine.families import llama_family

from .contract import Bench


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny matrices: threads would only get in each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A tiny random Llama, with BOS."""
    folder: Path = tmp_path_factory.mktemp("small")
    llama_family().save(folder)
    return Engine.load(folder, device="cpu", dtype="float32", store_tokens=1 << 14)


@pytest.fixture(params=["fake", "real"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """One of the two engines. After each test nothing but what was there before is left in it."""
    real = request.getfixturevalue("small") if request.param == "real" else None
    fake = FakeEngine(lambda call, prompt: "one two three four five")
    bench = Bench(real or fake)
    before = bench.used
    yield bench
    bench.clear()
    assert (bench.used, bench.engine.rows, bench.engine.idle) == (before, 0, True)
