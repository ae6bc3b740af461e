"""A random model of three layers: a leak of k hops needs k + 1 layers."""

import pytest

from agentcho import Engine
from tests.engine.families import Family, Layer
from tests.engines import Engines


@pytest.fixture(scope="session")
def three(engines: Engines) -> Engine:
    """A random Llama of three layers, with BOS."""
    return engines(Family("llama", "Llama", layers=(Layer(),) * 3), store_tokens=1 << 14)
