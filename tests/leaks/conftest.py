"""Fixtures for the fake and a tiny real engine, behind one interface."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentcho import Engine
from agentcho.testing import FakeEngine
from tests.engines import Engines

from .contract import Bench


@pytest.fixture(scope="session")
def small(engines: Engines) -> Engine:
    """A tiny random Llama, with BOS."""
    return engines(store_tokens=1 << 14)


@pytest.fixture(params=["fake", "real"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """One of the two engines. Asserts after each test that nothing new is left in it."""
    real = request.getfixturevalue("small") if request.param == "real" else None
    fake = FakeEngine(lambda call, prompt: "one two three four five")
    bench = Bench(real or fake)
    before = bench.used
    yield bench
    bench.clear()
    assert (bench.used, bench.engine.rows, bench.engine.idle) == (before, 0, True)
