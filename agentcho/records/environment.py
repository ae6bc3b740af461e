"""Where a result was found, and by which code: versions, machine, commit, digests of sources. Does not know: what was
found."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The folder that the package lies in: the root of a checkout, or where packages are installed."""
BESIDE = ("scenarios", "agents", "tools")
"""Folders of a checkout whose code is ours too."""
SHIPPED = "_library"
"""Where an installed package has the first two of them."""


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide what a model says."""
    packages = ("agentcho", "torch", "transformers", "llguidance")
    return {"python": platform.python_version()} | {package: _version(package) for package in packages}


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def machine() -> dict[str, str]:
    """Processor, cores and system; the commit of the checkout that runs, where it is one, with "-dirty" after it where
    a file of that commit had been changed when it was first asked for: what a process has loaded stays as it was."""
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "system": platform.system(),
        "commit": _commit() or "none",
    }


@cache
def _commit() -> str:
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def sources() -> dict[str, str]:
    """`modules`: digests of the code that has run in this process until now, as "agentcho/engine:0123456789ab …": of
    each folder that a loaded module lies in, its Python files, and of each shipped scenario and agent, its file."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    named = sorted(set(_named(Path(file) for file in files if file)))
    return {"modules": " ".join(f"{name}:{source_digest(ROOT, name)}" for name in named)}


def source_digest(root: Path, name: str) -> str:
    """Of one file below `root`, or of the Python files in one folder there; "gone" where there is none. Of scenarios
    and agents also where a package that is installed has them."""
    place = next((each for each in (root / name, root / "agentcho" / SHIPPED / name) if each.exists()), None)
    if place is None:
        return "gone"
    whole = hashlib.sha256()
    for file in sorted(place.glob("*.py")) if place.is_dir() else [place]:
        content = file.read_bytes()
        whole.update(f"{file.name}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()[:12]


def _named(files: Iterable[Path]) -> Iterator[str]:
    """By which name the code of each file is kept, of those that are ours."""
    ours = ("agentcho", *(BESIDE if (ROOT / "pyproject.toml").exists() else ()))
    for file in files:
        if file.suffix != ".py" or not file.is_relative_to(ROOT):
            continue
        below = file.relative_to(ROOT)
        if below.parts[:2] == ("agentcho", SHIPPED):
            yield Path(*below.parts[2:]).as_posix()
        elif below.parts[0] in ours:
            yield (below if below.parts[0] in BESIDE[:2] else below.parent).as_posix()
