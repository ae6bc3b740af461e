"""Tiny models of six layers, built once a session: plain, with sliding windows and soft caps, and with experts."""

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
    """Contexts of tiny models weigh little, and would be copied for each row: here they are shared as large ones."""
    monkeypatch.setattr(slots, "SAVED", 0)


DEEP = [pytest.param("llama"), *(pytest.param(name, marks=pytest.mark.slow) for name in ("gemma2", "qwen3_moe"))]


@pytest.fixture(scope="session", params=DEEP)
def deep_family(request: pytest.FixtureRequest) -> Family:
    """Six layers of each of three families."""
    return deep(next(family for family in families() if family.name == request.param))


@pytest.fixture
def deep_engine(deep_family: Family, engines: Engines) -> Engine:
    """Its engine."""
    return engines(deep_family)


@pytest.fixture
def llama_of(engines: Engines) -> Callable[[int], Engine]:
    """The engine of a llama with that many layers."""
    llama = families()[0]
    return lambda layers: engines(deep(llama, layers))
