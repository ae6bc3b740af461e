"""One server for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .environment import python_of
from .served import Server, running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`agentcho serve` in its own process. Tests are skipped if the clients are not installed."""
    python_of("frameworks")
    with running(tmp_path_factory.mktemp("server")) as started:
        yield started
