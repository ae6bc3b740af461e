"""A server for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .environment import python_of
from .served import Server, running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`agentcho serve`, in a process of its own, where there is a client that can ask it."""
    python_of("frameworks")
    with running(tmp_path_factory.mktemp("server")) as started:
        yield started
