"""Files that outlive a run: encodings of what everyone may read, for later runs of the same model.

A folder is one model's and one user's, whom alone the system lets in. Each file is under a keyed digest (HMAC-SHA256,
see `kept_key`) that binds its name, and with it the call that it was made for and all else that its bits depend on: so
a file that was changed, or put in the place of another, is noticed before anything of it is used. Names are keyed
digests too. Files are made under another name and renamed, so that several processes may use one folder, and a killed
one leaves nothing half. Does not know: what is in a file, who may read it.
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
"""Bytes that a folder may have in all; what was used least recently leaves it."""
SPARE = 8
"""Where room is made, one in so many bytes more than needed is freed, so that not every file looks through all."""
HEAD = "cache.json"
FORMAT = "agentcho-cache/1"
ENDING, FRESH = ".kept", ".new"
TAG = 32
Fields = Mapping[str, str]


class Fingerprint(NamedTuple):
    """What the bits of encodings depend on, their calls aside. `model`: what a whole folder is of. `beside`: what files
    of one folder may differ in, such as the versions of libraries: what was made otherwise is not found."""

    model: Fields
    beside: Fields


class PersistentFiles:
    """The files of one model in `place`, a folder that is made where there is none. `ConfigError`, `ModelError`: see
    `check`. `CannotWrite`: the system refuses it."""

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
        """The file of an encoding, by the key that names the encoding in its engine. `exact`: as it is made in the
        deterministic profile, of which another has other bits."""
        profile = b"exact" if exact else b"fast"
        return self._digest(b"name", self._bound, profile, key).hex()[:TAG] + ENDING

    def read(self, name: str) -> bytes | None:
        """What was written under a name; None: nothing. It counts as used. `StoreDamaged`, with its path: it is not
        what was written."""
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
        """Keep these bytes under a name; False: there is more of them than may be kept. `OSError`: the disk is full, or
        cannot be written; nothing is left of them."""
        size = TAG + len(data)
        if size > self.most:
            return False
        if self.used + size > self.most:
            self._make_room(size)
        self._put(name, self._tag(name, data), data)
        self.used += size
        return True

    def _put(self, name: str, *parts: bytes, over: bool = True) -> None:
        """A file of these parts, there whole or not at all. Not `over`: `FileExistsError` where there is one."""
        fresh = token_hex(16) + FRESH
        descriptor = os.open(fresh, MADE, 0o600, dir_fd=self._at)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # as long as it is held, nobody takes the file for a dead one's
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
        """Write down what the folder is of, or check it."""
        if not _blank(self._at):
            return _check_head(self._at, place, self._secret, model)
        head = {"format": FORMAT, "model": dict(model), "hmac": self._digest(b"head", _canonical(model)).hex()}
        try:
            self._put(HEAD, json.dumps(head, indent=1).encode() + b"\n", over=False)
        except FileExistsError:  # another process has begun at once
            _check_head(self._at, place, self._secret, model)

    def _files(self) -> list[tuple[float, int, str]]:
        """When each file was used last, its bytes and its name."""
        found = []
        with os.scandir(self._at) as there:
            for name in [each.name for each in there if each.name.endswith(ENDING)]:
                with suppress(OSError):  # another process has removed it
                    at = os.stat(name, dir_fd=self._at, follow_symlinks=False)
                    found.append((at.st_mtime, at.st_size, name))
        return found

    def _make_room(self, size: int) -> None:
        """Remove what was used least recently, if that is needed with all that other processes have written. What one
        is reading it has open."""
        files = sorted(self._files())
        self.used = sum(each for _, each, _ in files)
        full = self.used + size > self.most
        for _, each, name in files if full else ():
            if self.used > max(0, self.most - size - self.most // SPARE):
                with suppress(OSError):
                    os.unlink(name, dir_fd=self._at)
                self.used -= each

    def _remove_torn(self) -> None:
        """Remove what killed processes had not written to its end."""
        for name in [name for name in os.listdir(self._at) if name.endswith(FRESH)]:
            with suppress(OSError):  # it is being written, or gone by now
                descriptor = os.open(name, READ, dir_fd=self._at)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(name, dir_fd=self._at)
                finally:
                    os.close(descriptor)

    def _tag(self, name: str, data: bytes) -> bytes:
        """What a file begins with."""
        return self._digest(b"file", self._bound, name.encode(), data)

    def _digest(self, *parts: bytes) -> bytes:
        return _digest(self._secret, *parts)


def check(place: Path, model: Fields) -> None:
    """Whether encodings of a model may be kept in a folder, by these fields of it. Leaves nothing there. `ConfigError`:
    the folder is not its user's alone, holds other things, or is under another key. `ModelError`: it is another
    model's. `CannotWrite`: there can be no files in it."""
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
    """Whether there is nothing in a folder but what somebody has begun to write."""
    return all(name.endswith(FRESH) for name in os.listdir(at))


def _entered(place: Path) -> int:
    """The descriptor of a folder that only its owner can enter, and that is no link."""
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
    """Hold what a folder says that it is of against the fields of a model that are known."""
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
    """A keyed digest of several parts, each with its length, so that no two lists of parts look alike."""
    digest = hmac.new(secret, FORMAT.encode(), "sha256")
    for part in parts:
        digest.update(len(part).to_bytes(8))
        digest.update(part)
    return digest.digest()
