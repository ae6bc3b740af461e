"""Tiny models of six layers, built once per session: plain, with sliding windows and soft caps, and with experts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentcho import Engine
from agentcho.runner import slots
from tests.engine.families import Family, families
from tests.engines import Engines

from .stage import deep


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny models have small contexts, which would be copied for each row: shares them as large ones are shared."""
    monkeypatch.setattr(slots, "SAVED", 0)


DEEP = [pytest.param("llama"), *(pytest.param(name, marks=pytest.mark.slow) for name in ("gemma2", "qwen3_moe"))]


@pytest.fixture(scope="session", params=DEEP)
def deep_family(request: pytest.FixtureRequest) -> Family:
    """Each of three families with six layers."""
    return deep(next(family for family in families() if family.name == request.param))


@pytest.fixture
def deep_engine(deep_family: Family, engines: Engines) -> Engine:
    """The engine of that family."""
    return engines(deep_family)


@pytest.fixture
def llama_of(engines: Engines) -> Callable[[int], Engine]:
    """Returns the engine of a llama with a given number of layers."""
    llama = families()[0]
    return lambda layers: engines(deep(llama, layers))
