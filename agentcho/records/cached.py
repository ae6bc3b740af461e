"""Caches digests of Python files between processes, by the SHA-256 of their content: parsing some hundred files takes a
second or two. The digests are in the cache folder; if it cannot be read or written, they are computed."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from agentcho.records.digests import LENGTH, file_digest

CACHE = "AGENTCHO_CACHE"
"""The environment variable that names another folder for what is kept between runs."""
NAME = "digests.json"
MOST = 5_000
"""The number of digests from which on the file is started anew."""


def cache_root() -> Path:
    """The folder for what is kept between runs."""
    root = os.environ.get(CACHE)
    return Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "agentcho")


def file_digests(sources: list[bytes]) -> list[str]:
    """`file_digest` of each of these file contents; new ones are cached."""
    names = [f"{_maker()} {sha256(source).hexdigest()}" for source in sources]
    known = _read()
    found = {name: known.get(name) or file_digest(source) for name, source in zip(names, sources, strict=True)}
    if found.keys() - known.keys():
        _write((known if len(known) < MOST else {}) | found)
    return [found[name] for name in names]


@cache
def _maker() -> str:
    """A digest of the code that makes digests and of Python's version: other versions may make other digests."""
    parts = [files("agentcho.records").joinpath(name).read_bytes() for name in ("digests.py", "foreign.txt")]
    return f"{sys.version_info[0]}.{sys.version_info[1]} {sha256(b''.join(parts)).hexdigest()[:LENGTH]}"


def _read() -> dict[str, str]:
    """The cached digests, without invalid entries; empty if the file cannot be read."""
    try:
        kept = json.loads((cache_root() / NAME).read_bytes())
    except (OSError, ValueError, RuntimeError, RecursionError):
        return {}
    digest = re.compile(f"[0-9a-f]{{{LENGTH}}}")
    pairs = kept.items() if isinstance(kept, dict) else ()
    return {name: value for name, value in pairs if isinstance(value, str) and digest.fullmatch(value)}


def _write(known: dict[str, str]) -> None:
    """Write the cache atomically. If two processes write, the last one wins."""
    with suppress(OSError, RuntimeError):
        folder = cache_root()
        folder.mkdir(parents=True, exist_ok=True)
        number, fresh = tempfile.mkstemp(dir=folder, prefix=NAME)
        try:
            with os.fdopen(number, "w") as file:
                json.dump(known, file)
            Path(fresh).replace(folder / NAME)
        finally:
            Path(fresh).unlink(missing_ok=True)
