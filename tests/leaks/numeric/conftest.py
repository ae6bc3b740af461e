"""Tiny models of six layers, built once a session: plain, with sliding windows and soft caps, and with experts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentcho import Engine
from tests.engine.conftest import Engines, Models, engine, one_thread, stock
from tests.engine.families import Family, families

from .stage import deep

__all__ = ["Models", "engine", "one_thread", "stock"]


@pytest.fixture(scope="session", params=["llama", "gemma2", "qwen3_moe"])
def deep_family(request: pytest.FixtureRequest) -> Family:
    """Six layers of each of three families."""
    return deep(next(family for family in families() if family.name == request.param))


@pytest.fixture
def deep_engine(deep_family: Family, engine: Engines) -> Engine:
    """Its engine."""
    return engine(deep_family)


@pytest.fixture
def llama_of(engine: Engines) -> Callable[[int], Engine]:
    """The engine of a llama with that many layers."""
    llama = families()[0]
    return lambda layers: engine(deep(llama, layers))
