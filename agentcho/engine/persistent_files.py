"""Stores encodings of public messages on disk for later runs of the same model.

A folder belongs to one model and one user; its permissions exclude other users. Each file has a keyed digest
(HMAC-SHA256, see `persistent_key`) that covers its name, and with it the call that it was made for and everything else
that its bits depend on. So a file that was changed or swapped for another is detected before it is used. Names are
keyed digests too. Files are written under a temporary name and renamed, so that several processes may share a folder,
and a killed process leaves no partial file. Independent of the content of files.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import stat
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

from agentcho.engine.persistent_key import VARIABLE, key_for, source
from agentcho.engine.spill_files import MADE, NO_LINK, READ
from agentcho.errors import CannotWrite, ConfigError, ModelError, StoreDamaged
from agentcho.records.files import check_folder

MOST = 4 << 30
"""Maximum size of a folder in bytes. The least recently used files are removed first."""
SPARE = 8
"""When room is made, 1/SPARE of the maximum size is freed as well, so that not every write scans all files."""
HEAD = "cache.json"
FORMAT = "agentcho-cache/1"
ENDING, FRESH = ".kept", ".new"
TAG = 32
Fields = Mapping[str, str]


class Fingerprint(NamedTuple):
    """Everything except the call that the bits of an encoding depend on. `model`: common to a whole folder. `beside`:
    what may differ between files of one folder, such as library versions; files made under other values are not found.
    """

    model: Fields
    beside: Fields


class PersistentFiles:
    """The files of one model in the folder `place`, which is created if it does not exist. Raises `ConfigError` and
    `ModelError` as `check` does, and `CannotWrite` if the folder cannot be written."""

    def __init__(self, place: Path, fingerprint: Fingerprint, most: int = MOST) -> None:
        self._secret, self.most = key_for(place), most
        try:
            for folder in reversed([place.absolute(), *place.absolute().parents]):
                folder.mkdir(mode=0o700, exist_ok=True)
            self._at = _entered(place)
            self.close = weakref.finalize(self, os.close, self._at)
            self._begin(place, fingerprint.model)
            self._remove_torn()
        except OSError as error:
            raise CannotWrite(place, error.strerror or str(error), begun=False) from error
        self.folder = place
        self._bound = _canonical({"model": fingerprint.model, "beside": fingerprint.beside})
        self.used = sum(size for _, size, _ in self._files())

    def name(self, key: bytes, exact: bool) -> str:
        """The file name of an encoding, by its key in the engine. `exact`: made in the deterministic profile, which
        gives other bits."""
        profile = b"exact" if exact else b"fast"
        return self._digest(b"name", self._bound, profile, key).hex()[:TAG] + ENDING

    def read(self, name: str) -> bytes | None:
        """The bytes written under a name. None if there are none. Marks the file as used. Raises `StoreDamaged`, with
        the path, if the file cannot be read or has changed."""
        path = self.folder / name
        try:
            with open(name, "rb", opener=lambda name, flags: os.open(name, READ, dir_fd=self._at)) as opened:
                found = os.fstat(opened.fileno())
                data = opened.read() if stat.S_ISREG(found.st_mode) and found.st_size <= self.most else b""
                with suppress(OSError):
                    os.utime(opened.fileno())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreDamaged(f"{path}: {error.strerror or error}", path) from error
        if not hmac.compare_digest(self._tag(name, data[TAG:]), data[:TAG]):
            raise StoreDamaged(f"{path} has changed since it was written, or was written under another key", path)
        return data[TAG:]

    def write(self, name: str, data: bytes) -> bool:
        """Store these bytes under a name. Returns False if they exceed the maximum size. Raises `OSError` if the disk
        is full or cannot be written; no partial file remains."""
        size = TAG + len(data)
        if size > self.most:
            return False
        if self.used + size > self.most:
            self._make_room(size)
        self._put(name, self._tag(name, data), data)
        self.used += size
        return True

    def _put(self, name: str, *parts: bytes, over: bool = True) -> None:
        """Write a file of these parts atomically. Without `over`, raises `FileExistsError` if it exists."""
        fresh = token_hex(16) + FRESH
        descriptor = os.open(fresh, MADE, 0o600, dir_fd=self._at)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # other processes remove unlocked temporary files
            for part in parts:
                left = memoryview(part)
                while left:
                    left = left[os.write(descriptor, left) :]
            if over:
                os.rename(fresh, name, src_dir_fd=self._at, dst_dir_fd=self._at)
            else:
                os.link(fresh, name, src_dir_fd=self._at, dst_dir_fd=self._at)
        finally:
            with suppress(OSError):
                os.unlink(fresh, dir_fd=self._at)
            os.close(descriptor)

    def _begin(self, place: Path, model: Fields) -> None:
        """Write the folder's head, or check it."""
        if not _blank(self._at):
            return _check_head(self._at, place, self._secret, model)
        head = {"format": FORMAT, "model": dict(model), "hmac": self._digest(b"head", _canonical(model)).hex()}
        try:
            self._put(HEAD, json.dumps(head, indent=1).encode() + b"\n", over=False)
        except FileExistsError:  # another process began at the same time
            _check_head(self._at, place, self._secret, model)

    def _files(self) -> list[tuple[float, int, str]]:
        """The time of last use, size in bytes and name of each file."""
        found = []
        with os.scandir(self._at) as there:
            for name in [each.name for each in there if each.name.endswith(ENDING)]:
                with suppress(OSError):  # another process has removed it
                    at = os.stat(name, dir_fd=self._at, follow_symlinks=False)
                    found.append((at.st_mtime, at.st_size, name))
        return found

    def _make_room(self, size: int) -> None:
        """Remove the least recently used files, if the files of all processes leave too little room. A process that is
        reading one has it open, and can go on."""
        files = sorted(self._files())
        self.used = sum(each for _, each, _ in files)
        full = self.used + size > self.most
        for _, each, name in files if full else ():
            if self.used > max(0, self.most - size - self.most // SPARE):
                with suppress(OSError):
                    os.unlink(name, dir_fd=self._at)
                self.used -= each

    def _remove_torn(self) -> None:
        """Remove the partial files of killed processes."""
        for name in [name for name in os.listdir(self._at) if name.endswith(FRESH)]:
            with suppress(OSError):  # it is being written, or gone by now
                descriptor = os.open(name, READ, dir_fd=self._at)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(name, dir_fd=self._at)
                finally:
                    os.close(descriptor)

    def _tag(self, name: str, data: bytes) -> bytes:
        """The keyed digest that a file begins with."""
        return self._digest(b"file", self._bound, name.encode(), data)

    def _digest(self, *parts: bytes) -> bytes:
        return _digest(self._secret, *parts)


def check(place: Path, model: Fields) -> None:
    """Check that encodings of a model with these fields may be stored in a folder. Writes nothing. Raises `ConfigError`
    if other users can access the folder, if it holds other files, or if it was made under another key, `ModelError` if
    it belongs to another model, and `CannotWrite` if it cannot be written."""
    secret = key_for(place)
    check_folder(place)
    if os.path.lexists(place):
        at = _entered(place)
        try:
            if not _blank(at):
                _check_head(at, place, secret, model)
        finally:
            os.close(at)


def _blank(at: int) -> bool:
    """Whether a folder has nothing in it except temporary files."""
    return all(name.endswith(FRESH) for name in os.listdir(at))


def _entered(place: Path) -> int:
    """The descriptor of a folder, after a check that only its owner can enter it and that it is not a link."""
    if place.is_symlink():
        raise ConfigError(f"{place} is a link, and no encodings are stored through links; give the folder")
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | NO_LINK)
    found = os.fstat(descriptor)
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        os.close(descriptor)
        if found.st_uid != os.getuid():
            raise ConfigError(
                f"{place} belongs to another user, who could put encodings there; give a folder of your own"
            )
        raise ConfigError(
            f"others than its owner may use {place}; chmod 700 it if all its files are yours, or give another"
        )
    return descriptor


def _check_head(at: int, place: Path, secret: bytes, model: Fields) -> None:
    """Check the head of a folder against the fields of a model."""
    try:
        with open(HEAD, "rb", opener=lambda name, flags: os.open(name, READ, dir_fd=at)) as opened:
            head: Any = json.loads(opened.read(1 << 16))
        theirs, tag = {str(name): str(value) for name, value in head["model"].items()}, bytes.fromhex(head["hmac"])
    except FileNotFoundError:
        raise ConfigError(
            f"{place} contains other files, and no stored encodings with a {HEAD}; give an empty folder"
        ) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ConfigError(f"{place / HEAD} is damaged; delete {place}, or give another folder") from None
    if head.get("format") != FORMAT:
        raise ConfigError(f"{place} was written by another version of agentcho; delete it, or give another folder")
    if not hmac.compare_digest(_digest(secret, b"head", _canonical(theirs)), tag):
        raise ConfigError(
            f"{place} was made under a key other than the one in {source()}, or its {HEAD} was changed; set {VARIABLE} "
            "to the original key, delete the folder, or give another one"
        )
    if other := [name for name in sorted(model) if model.get(name) != theirs.get(name)]:
        told = "; ".join(f"{name} {theirs.get(name)}, and not {model.get(name)}" for name in other)
        raise ModelError(f"{place} holds encodings of another model ({told}); give another folder, or delete it")


def _canonical(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, default=dict).encode()


def _digest(secret: bytes, *parts: bytes) -> bytes:
    """A keyed digest of several parts, each with its length, so that different lists of parts never collide by
    concatenation."""
    digest = hmac.new(secret, FORMAT.encode(), "sha256")
    for part in parts:
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.digest()
