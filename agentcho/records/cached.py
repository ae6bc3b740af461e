"""Digests of Python files that stay between processes, by the SHA-256 of their content: reading some hundred syntax
trees takes a second or two. They lie in the cache folder, and whoever cannot read or write there computes them.

Does not know: how a digest is made.
"""

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
"""Files of so many digests begin anew."""


def cache_root() -> Path:
    """The folder for what is kept between runs."""
    root = os.environ.get(CACHE)
    return Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "agentcho")


def file_digests(sources: list[bytes]) -> list[str]:
    """`file_digest` of each of these contents of files; those that are new are kept."""
    names = [f"{_maker()} {sha256(source).hexdigest()}" for source in sources]
    known = _read()
    found = {name: known.get(name) or file_digest(source) for name, source in zip(names, sources, strict=True)}
    if found.keys() - known.keys():
        _write((known if len(known) < MOST else {}) | found)
    return [found[name] for name in names]


@cache
def _maker() -> str:
    """What makes digests: another version of it, or of Python's grammar, may make others."""
    parts = [files("agentcho.records").joinpath(name).read_bytes() for name in ("digests.py", "foreign.txt")]
    return f"{sys.version_info[0]}.{sys.version_info[1]} {sha256(b''.join(parts)).hexdigest()[:LENGTH]}"


def _read() -> dict[str, str]:
    """What is kept; nothing, where it cannot be read. What is no digest is left out."""
    try:
        kept = json.loads((cache_root() / NAME).read_bytes())
    except (OSError, ValueError, RuntimeError, RecursionError):
        return {}
    digest = re.compile(f"[0-9a-f]{{{LENGTH}}}")
    pairs = kept.items() if isinstance(kept, dict) else ()
    return {name: value for name, value in pairs if isinstance(value, str) and digest.fullmatch(value)}


def _write(known: dict[str, str]) -> None:
    """Keep them, as a whole file or not at all. Where two processes write, the later one's file stays."""
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
