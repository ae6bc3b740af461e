"""A random model of five layers: a leak of k hops needs k + 1 of them."""

import pytest

from agentcho import Engine
from tests.engine.families import Family, Layer
from tests.engines import Engines


@pytest.fixture(scope="session")
def five(engines: Engines) -> Engine:
    """A random Llama of five layers, with BOS."""
    return engines(Family("llama", "Llama", layers=(Layer(),) * 5), store_tokens=1 << 14)
