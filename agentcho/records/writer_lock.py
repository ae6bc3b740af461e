"""Ensures that a folder or file has one writer at a time, and tells whether the writing process is still alive.

A claim is a small file beside what is written, with process, host and time; its modification time is a heartbeat. The
operating system locks it while the process lives (POSIX), and releases it however the process ends. Without such locks,
a recent heartbeat counts as alive. Independent of what is written.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Lock, Thread
from types import TracebackType
from typing import NamedTuple

from agentcho.errors import RecordInUse
from agentcho.records.files import write_errors

try:
    import fcntl
except ImportError:  # not POSIX
    fcntl = None  # type: ignore[assignment]

NAME = "writer.json"
BEAT, STILL = 10.0, 60.0
"""The seconds between two heartbeats, and the seconds without one after which a writer counts as dead if there are no
locks."""
TRIES, PAUSE = 5, 0.02
"""A process that checks for a live writer briefly holds its lock; so the lock is tried this often, with these pauses in
seconds."""


class WriterIdentity(NamedTuple):
    """The writer, and since when it writes (ISO 8601 in UTC)."""

    pid: int
    host: str
    since: str


class Heartbeat:
    """Renews the claims of this process, in one thread that runs while there are any."""

    def __init__(self) -> None:
        self._files = set[Path]()
        self._guard, self._over = Lock(), Event()
        self._thread: Thread | None = None

    @property
    def beats(self) -> bool:
        """Whether its thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def add(self, file: Path) -> None:
        """Renew this claim from now on."""
        with self._guard:
            self._files.add(file)
            if not self.beats:  # a forked process has the files, and not the thread
                self._over = Event()
                self._thread = Thread(target=self._beat, args=(self._over,), daemon=True, name="heartbeat")
                self._thread.start()

    def remove(self, file: Path) -> None:
        """Renew it no longer."""
        with self._guard:
            self._files.discard(file)
            if not self._files:
                self._over.set()
                self._thread = None

    def _beat(self, over: Event) -> None:
        while not over.wait(BEAT):
            with self._guard:
                files = [*self._files]
            for file in files:
                with suppress(OSError):  # the folder may have been removed
                    os.utime(file)


HEARTBEAT = Heartbeat()


class WriterLock:
    """A claim by the file `file` on what is beside it, held until `close`. A context manager. Raises `RecordInUse`,
    which names the writer, if another process holds it; the claim of a dead process is taken over."""

    def __init__(self, file: Path, what: Path | None = None) -> None:
        self.file = file
        with write_errors(file):
            self._descriptor = self._claimed(what or file.parent)
            try:
                self._sign()
            except OSError:
                os.close(self._descriptor)
                raise
        self._over = False
        HEARTBEAT.add(file)

    def _sign(self) -> None:
        self.who = WriterIdentity(os.getpid(), socket.gethostname(), datetime.now(UTC).isoformat(timespec="seconds"))
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, (json.dumps(self.who._asdict()) + "\n").encode())

    def _claimed(self, what: Path) -> int:
        """The descriptor of the claim, locked."""
        for _ in range(TRIES):
            descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT, 0o644)
            free = _lock(descriptor)
            if free is None:
                free = read(self.file) is None or not _fresh(descriptor)
            if free and _same(descriptor, self.file):
                return descriptor
            os.close(descriptor)
            time.sleep(PAUSE)
        raise RecordInUse(what, *(read(self.file) or WriterIdentity(0, "?", "?")))

    def close(self) -> None:
        """Release the claim. A second call is a no-op."""
        if not self._over:
            self._over = True
            HEARTBEAT.remove(self.file)
            try:
                self.file.unlink(missing_ok=True)
            finally:
                os.close(self._descriptor)

    def __enter__(self) -> WriterLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def beside(file: Path) -> Path:
    """The path of the claim on a single file."""
    return file.with_name(f".{file.name}.{NAME}")


def read(file: Path) -> WriterIdentity | None:
    """The process that made a claim, or None if there is none or it is being made."""
    try:
        who = WriterIdentity(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return who if tuple(map(type, who)) == (int, str, str) else None


def alive(file: Path) -> bool:
    """Whether a process holds a claim."""
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError:
        return False
    try:
        free = _lock(descriptor, shared=True)
        return _fresh(descriptor) if free is None else not free
    finally:
        os.close(descriptor)


def check(file: Path, what: Path | None = None) -> None:
    """Raise `RecordInUse` if a process holds a claim."""
    if alive(file) and (who := read(file)) is not None:
        raise RecordInUse(what or file.parent, *who)


def _fresh(descriptor: int) -> bool:
    """Whether there was a recent heartbeat."""
    return time.time() - os.fstat(descriptor).st_mtime < STILL


def _lock(descriptor: int, shared: bool = False) -> bool | None:
    """Whether the lock was free, or None if there are no locks here."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _same(descriptor: int, file: Path) -> bool:
    """Whether a path still names the opened file: its writer may have ended and removed it in between."""
    try:
        return os.fstat(descriptor).st_ino == file.stat().st_ino
    except OSError:
        return False
