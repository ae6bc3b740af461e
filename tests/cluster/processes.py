"""Finds the processes of a test's cluster by an environment variable that they inherit. Linux only."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "AGENTCHO_TEST_CLUSTER"


def marked(mark: str) -> Iterator[tuple[int, str]]:
    """Processes with this mark, and their command lines."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={mark}\0".encode() in (folder / "environ").read_bytes() + b"\0" and _alive(folder):
                yield int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()


def _alive(folder: Path) -> bool:
    return (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z"


def actors(mark: str) -> list[int]:
    """The processes of workers."""
    return sorted(pid for pid, command in marked(mark) if command.startswith("ray::Worker"))


def kill(pid: int) -> None:
    """Kills a process."""
    os.kill(pid, signal.SIGKILL)
