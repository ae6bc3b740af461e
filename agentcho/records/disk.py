"""Files that are written whole or not at all, and whether there is room for them. What the system says of it is a line.

Does not know: what is in a file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentcho.errors import CannotWrite


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """`CannotWrite` where the system refuses: a full disk, a file that may not be written."""
    try:
        yield
    except OSError as error:
        raise CannotWrite(path, error.strerror or str(error)) from error


def replace(path: Path, content: str | bytes) -> None:
    """Write a file beside it and let it take its place, once it is with the disk: a reader never sees half of it."""
    fresh = path.with_name(f"{path.name}.new")
    with writing(path):
        with fresh.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)


def check_folder(folder: Path) -> None:
    """`CannotWrite` unless a folder is there, or can be made, and takes files. Leaves nothing behind."""
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists() or each.is_symlink())
    if not there.is_dir():
        raise CannotWrite(folder, "it is a file" if there == folder else f"{there} is a file", begun=False)
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"\n")
    except OSError as error:
        raise CannotWrite(folder, error.strerror or str(error), begun=False) from None


def check_file(file: Path) -> None:
    """`CannotWrite` unless a file is there, or can be made with its folders, and can be written. Leaves nothing
    behind."""
    if file.is_dir():
        raise CannotWrite(file, "it is a folder", begun=False)
    check_folder(file.parent)
    if file.exists():
        try:
            file.open("ab").close()
        except OSError as error:
            raise CannotWrite(file, error.strerror or str(error), begun=False) from None
