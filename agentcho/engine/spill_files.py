"""Files of one engine alone, for as long as it lives: what leaves host memory is written to them. On POSIX systems.

Each engine has a folder of its own, which nobody but its owner can enter; names of files are random. A file is read
whole, into memory of this process, and held against a keyed digest that never leaves it, before anything of it is used:
so a file that was changed, cut or put in the place of another is noticed, even while it is being read. (A mapping would
be neither: it shows what is changed after the check, and a file that is cut under it kills the process.)

The system locks the folder as long as the process lives, however that ends. What a dead one has left is removed by
whoever begins next in the same place. Does not know: what is in a file, which one has to go.
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
"""How often a folder is made anew that somebody else has taken for one of the dead."""
NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NONBLOCK | NO_LINK
"""Without waiting for somebody to write, where a pipe was put in the place of a file."""
MADE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK


class SpillFile(NamedTuple):
    """A file of `size` bytes. `digest`: of its bytes, keyed."""

    name: str
    size: int
    digest: bytes


class SpillFiles:
    """The files of one engine, in a folder that is made in `place`. `CannotWrite`: the system refuses that."""

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
        """A new file with these bytes. `OSError`: the disk is full, or cannot be written; nothing is left of it."""
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
        """Its bytes, as they were written. `StoreDamaged`, with its path: it is gone, or not what it was."""
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
        """Have the system read a file ahead, beside what else is done, where it can."""
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError), open(file.name, "rb", buffering=0, opener=self._open) as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)

    def remove(self, file: SpillFile) -> None:
        """Give a file up; one that is gone is none."""
        with suppress(OSError):
            os.unlink(file.name, dir_fd=self._at)

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, READ, dir_fd=self._at)

    def _digest(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, "sha256")


def remove_dead(place: Path) -> None:
    """Remove the folders in `place` that engines of this user have left whose processes are dead."""
    for folder in place.glob(f"{PREFIX}*"):
        with suppress(OSError):  # it is no folder, another user's, in use, or gone by now
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | NO_LINK)
            try:
                if os.fstat(descriptor).st_uid == os.getuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)
            finally:
                os.close(descriptor)


def _claimed(place: Path) -> tuple[Path, int]:
    """A fresh folder and its descriptor, locked. Somebody may take it for one of the dead before it is locked."""
    for _ in range(TRIES):
        folder = Path(mkdtemp(prefix=PREFIX, dir=place))
        with suppress(FileNotFoundError):
            return folder, _locked(folder)
    raise FileNotFoundError(f"folders created in {place} disappear at once")


def _locked(folder: Path) -> int:
    """The descriptor of a folder that was just made. `OSError`: it cannot be locked, and is removed, or it is gone."""
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
    """Remove a folder. A child of the process that was forked has the same object, and not the folder."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
    os.close(descriptor)
