"""Where a result was found: versions, machine, commit. Does not know: what was found."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide what a model says."""
    found = {"python": platform.python_version()}
    for package in ("agentcho", "torch", "transformers", "llguidance"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def machine() -> dict[str, str]:
    """Processor, cores and system; the commit of the checkout that runs, where it is one, with "-dirty" after it where
    a file of that commit has been changed since."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        asked = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        asked = ""
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "system": platform.system(),
        "commit": asked or "none",
    }
