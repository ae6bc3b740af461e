"""A random model of five layers: a leak of k hops needs k + 1 of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from agentcho import Engine
from tests.engine.families import Family, Layer


@pytest.fixture(scope="session")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A random Llama of five layers, with BOS."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    folder: Path = tmp_path_factory.mktemp("five")
    Family("llama", "Llama", layers=(Layer(),) * 5).save(folder)
    yield Engine.load(folder, device="cpu", dtype="float32", store_tokens=1 << 14)
    torch.set_num_threads(before)
