"""Runs a real headless browser for tests: the DOM and the console output of a page, and screenshots of it.

Independent of what the page contains.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from matplotlib.image import imread
from numpy.typing import NDArray

Picture = NDArray[np.float32]
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--enable-logging=stderr"),
    *("--virtual-time-budget=3000", "--timeout=30000"),
)


class Opened(NamedTuple):
    """The DOM of a page once it has settled, and the lines of its console."""

    dom: str
    console: list[str]

    def told(self, name: str) -> int:
        """Returns a number that the page's script stored as a data attribute of the root element."""
        root = self.dom[self.dom.index("<html") :]
        found = re.search(rf'data-{name}="(\d+)"', root[: root.index(">")])
        assert found is not None, f"the page's script did not tell {name}"
        return int(found[1])


def chromium() -> str:
    """Returns the browser's name. Skips the test if none is installed, except in CI, where that fails."""
    for name in NAMES:
        if found := shutil.which(name):
            return found
    assert os.environ.get("CI") != "true", "no chromium on the build server"
    return pytest.skip("no chromium here")


def opened(page: Path, folder: Path, *options: str, at: str = "") -> Opened:
    """Opens a file, optionally at a fragment. The browser profile lives in `folder`."""
    return visited(page.as_uri() + at, folder, *options)


def visited(address: str, folder: Path, *options: str) -> Opened:
    """Opens an address."""
    ran = _run(address, folder, *options, "--dump-dom")
    return Opened(ran.stdout, [line for line in ran.stderr.splitlines() if "CONSOLE" in line])


def pictured(page: Path, folder: Path, *options: str) -> Picture:
    """Takes a screenshot: [height, width, 3 or 4] in [0, 1]."""
    file = folder / "picture.png"
    _run(page.as_uri(), folder, *options, f"--screenshot={file}", "--window-size=1280,1400", "--hide-scrollbars")
    picture: Picture = imread(file)
    return picture


def _run(address: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = [chromium(), *QUIET, f"--user-data-dir={folder / 'profile'}", *options, address]
    return subprocess.run(words, capture_output=True, text=True, encoding="utf-8", check=True, timeout=120)
