"""The secret key that protects encodings stored between runs. It comes from the environment, or from a file that only
its owner can read and that is made at first use. It is never in the folder that it protects."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from secrets import token_hex, token_urlsafe

from agentcho.engine.spill_files import MADE, READ
from agentcho.errors import CannotWrite, ConfigError

VARIABLE = "AGENTCHO_CACHE_KEY"
SHORTEST = 32
LONGEST = 1 << 12


def key_for(folder: Path) -> bytes:
    """The secret key for the files in `folder`. Raises `ConfigError` if it is too short, or its file is readable by
    others or inside the folder, and `CannotWrite` if none can be made."""
    if said := os.environ.get(VARIABLE):
        return _usable(said, f"the key in {VARIABLE}", f"set {VARIABLE} to at least {SHORTEST} secret characters")
    file = key_file()
    if folder.resolve() in file.resolve().parents:
        raise ConfigError(
            f"the key {file} is inside {folder}, the folder it protects; give another folder, or set {VARIABLE}"
        )
    _make(file)
    remedy = f"delete {file}, and what was kept under it"
    return _usable(_read(file), f"the key in {file}", remedy)


def source() -> str:
    """The place of the secret key, in words."""
    return f"the environment ({VARIABLE})" if os.environ.get(VARIABLE) else str(key_file())


def key_file() -> Path:
    """The file of the secret key, used unless the environment has one."""
    said = os.environ.get("XDG_CONFIG_HOME", "")
    home = Path(said) if os.path.isabs(said) else Path("~/.config").expanduser()
    return home / "agentcho" / "cache.key"


def _usable(said: str, what: str, remedy: str) -> bytes:
    if len(said) < SHORTEST:
        raise ConfigError(f"{what} has {len(said)} characters; {remedy}")
    return said.encode("utf-8", "surrogateescape")


def _read(file: Path) -> str:
    try:
        with open(file, "rb", opener=lambda name, flags: os.open(name, READ)) as opened:
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
                raise ConfigError(f"the key {file} is not a regular file of yours; move it away, or set {VARIABLE}")
            if found.st_mode & 0o077:
                raise ConfigError(f"the key {file} is open to other users; run chmod 600 {file}")
            return opened.read(LONGEST).decode("ascii", "replace").strip()
    except OSError as error:
        raise ConfigError(
            f"the key {file} cannot be read: {error.strerror or error}; move it away, or set {VARIABLE}"
        ) from None


def _make(file: Path) -> None:
    """Make a secret key if there is none. If two processes begin at once, one file wins, and both read it."""
    if os.path.lexists(file):
        return
    fresh = file.with_name(f"{file.name}.{token_hex(8)}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with open(fresh, "wb", opener=lambda name, flags: os.open(name, MADE, 0o600)) as opened:
                opened.write(token_urlsafe(32).encode() + b"\n")
            os.link(fresh, file)
        except FileExistsError:
            pass
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise CannotWrite(file, f"{error.strerror or error} (or set {VARIABLE})", begun=False) from error
