"""Builds the distributions once: the sdist, and the wheel made from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both distributions."""
    out = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(words, check=True, capture_output=True)
    return out


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    """The wheel."""
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def sdist(dist: Path) -> Path:
    """The source distribution."""
    (built,) = dist.glob("*.tar.gz")
    return built
