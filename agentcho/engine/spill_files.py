"""Temporary files of one engine, for encodings that leave host memory. On POSIX systems.

Each engine has a folder of its own that only its owner can enter; file names are random. A file is read completely into
the memory of this process and checked against a keyed digest that never leaves the process before it is used. So a file
that was changed, truncated or swapped for another is detected, even while it is being read. (A memory mapping would not
do: it shows changes made after the check, and truncation of the file kills the process.)

The folder is locked as long as the process lives, however that ends. The next engine that starts in the same place
removes the folders of dead processes. Independent of the content of files and of eviction.
"""

from __future__ import annotations

import fcntl
import hmac
import os
import shutil
import weakref
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes, token_hex
from tempfile import mkdtemp
from typing import NamedTuple

from agentcho.errors import CannotWrite, StoreDamaged

PREFIX = "agentcho-disk-"
TRIES = 5
"""Maximum number of attempts to create a folder, because another process may remove a new one as abandoned."""
NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NONBLOCK | NO_LINK
"""Does not block if the file was replaced by a pipe."""
MADE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK


class SpillFile(NamedTuple):
    """A file of `size` bytes, with the keyed `digest` of its bytes."""

    name: str
    size: int
    digest: bytes


class SpillFiles:
    """The files of one engine, in a new folder in `place`. Raises `CannotWrite` if it cannot be created."""

    def __init__(self, place: Path) -> None:
        self._key = token_bytes(32)
        try:
            place.mkdir(parents=True, exist_ok=True)
            remove_dead(place)
            self.folder, self._at = _claimed(place)
        except OSError as error:
            raise CannotWrite(place, error.strerror or str(error), begun=False) from error
        self.close = weakref.finalize(self, _remove, self.folder, self._at, os.getpid())
        """Remove all of it, once; it is also done when the process ends by itself."""

    def write(self, data: bytes) -> SpillFile:
        """Write a new file. Raises `OSError` if the disk is full or cannot be written; no partial file remains."""
        name = f"{token_hex(16)}.safetensors"
        descriptor = os.open(name, MADE, 0o600, dir_fd=self._at)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
        except BaseException:
            os.unlink(name, dir_fd=self._at)
            raise
        finally:
            os.close(descriptor)
        return SpillFile(name, len(data), self._digest(data))

    def read(self, file: SpillFile) -> bytes:
        """The bytes of a file. Raises `StoreDamaged`, with the path, if it is gone or has changed."""
        path = self.folder / file.name
        try:
            with open(file.name, "rb", opener=self._open) as opened:
                data = opened.read(file.size + 1) or b""
        except OSError as error:
            raise StoreDamaged(f"{path}: {error.strerror or error}", path) from error
        if not hmac.compare_digest(self._digest(data), file.digest):
            raise StoreDamaged(f"{path} has changed since it was written", path)
        return data

    def expect(self, file: SpillFile) -> None:
        """Have the system read a file ahead in the background, if it can."""
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError), open(file.name, "rb", buffering=0, opener=self._open) as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)

    def remove(self, file: SpillFile) -> None:
        """Remove a file, if it still exists."""
        with suppress(OSError):
            os.unlink(file.name, dir_fd=self._at)

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, READ, dir_fd=self._at)

    def _digest(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, "sha256")


def remove_dead(place: Path) -> None:
    """Remove the folders in `place` of this user's engines whose processes are dead."""
    for folder in place.glob(f"{PREFIX}*"):
        with suppress(OSError):  # not a folder, another user's, in use, or gone by now
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | NO_LINK)
            try:
                if os.fstat(descriptor).st_uid == os.getuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
            finally:
                os.close(descriptor)


def _claimed(place: Path) -> tuple[Path, int]:
    """A new, locked folder and its descriptor. Tries again if another process removes the folder before the lock."""
    for _ in range(TRIES):
        folder = Path(mkdtemp(prefix=PREFIX, dir=place))
        with suppress(FileNotFoundError):
            return folder, _locked(folder)
    raise FileNotFoundError(f"folders created in {place} disappear at once")


def _locked(folder: Path) -> int:
    """Lock a new folder, and return its descriptor. Raises `OSError` if it is gone or cannot be locked; it is removed
    then."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | NO_LINK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        folder.lstat()
    except OSError:
        os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return descriptor


def _remove(folder: Path, descriptor: int, owner: int) -> None:
    """Close a folder, and remove it unless this is a forked child of the owning process."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
    os.close(descriptor)
