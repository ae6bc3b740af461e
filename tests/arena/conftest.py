"""Imports TextArena from its own environment; packages that both environments have come from this one."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from tests.cli.conftest import agentcho, here
from tests.clients.environment import python_of

__all__ = ["agentcho", "here", "textarena"]


def site_packages() -> Path:
    """The folder in which `make clients` installs TextArena."""
    here = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return python_of("textarena").parents[1] / "lib" / here / "site-packages"


@pytest.fixture(scope="session")
def textarena() -> Path:
    """Makes TextArena importable, after everything else; returns its folder. Skips tests where it is not installed."""
    folder = site_packages()
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import textarena
    assert textarena.__version__
    return folder
