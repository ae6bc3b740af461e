"""Files of JSON lines, atomic replacement of files, and checks that a place can be written to.

An operating system error becomes a one-line `CannotWrite`. Independent of what files contain.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from agentcho.errors import CannotWrite, RecordBroken


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Raise `CannotWrite` if the system refuses, as for a full disk or a file without write permission. A pipe whose
    reader has closed it raises `BrokenPipeError`."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CannotWrite(path, error.strerror or str(error)) from error


def replace_whole(path: Path, content: str | bytes) -> None:
    """Write a file beside `path`, flush it to the disk and rename it to `path`: no reader sees a partial file."""
    fresh = path.with_name(f"{path.name}.new")
    with write_errors(path):
        try:
            with fresh.open("wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file that a user has named, whole or not at all, with its folders.

    A link stays, and what it points to is written. Anything but a regular file, such as a pipe, is written to directly;
    so is what the process has open, such as /dev/stdout, which may be a file to which others write too. A pipe that
    nobody reads raises `BrokenPipeError`.
    """
    with write_errors(path):
        if not is_replaceable(path):
            with path.open("ab") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_whole(path.resolve(), content)


def is_replaceable(path: Path) -> bool:
    """Whether a file can be replaced by another one: not what a process has open, nor a pipe or a device."""
    return not str(path).startswith(("/dev/std", "/dev/fd/", "/proc/")) and (path.is_file() or not path.exists())


def check_folder(folder: Path) -> None:
    """Raise `CannotWrite` unless a folder exists or can be made, and takes files. Leaves nothing behind."""
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists() or each.is_symlink())
    if not there.is_dir():
        raise CannotWrite(folder, "it is a file" if there == folder else f"{there} is a file", begun=False)
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"\n")
    except OSError as error:
        raise CannotWrite(folder, error.strerror or str(error), begun=False) from None


def check_file(file: Path) -> None:
    """Raise `CannotWrite` unless a file exists or can be made with its folders, and can be written. Leaves nothing
    behind."""
    if file.is_dir():
        raise CannotWrite(file, "it is a folder", begun=False)
    check_folder(file.parent)
    if file.is_file():
        try:
            file.open("ab").close()
        except OSError as error:
            raise CannotWrite(file, error.strerror or str(error), begun=False) from None


def encoded_lines(lines: Iterable[dict[str, Any]]) -> bytes:
    """Lines in the form stored in files."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode(errors="backslashreplace")


class LineFile:
    """An append-only file of JSON lines. Each `append` is one write of one whole line, flushed to the kernel.

    Opening cuts a torn last line. Use as a context manager; closing twice is a no-op.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1
        with write_errors(path):
            if path.exists():
                _cut_torn_line(path)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self._size = os.fstat(self._file).st_size

    def append(self, line: dict[str, Any]) -> None:
        """Write one line. After a kill it is complete, or torn and ignored by readers. If it raises `CannotWrite`,
        nothing of it is in the file."""
        self.write(encoded_lines([line]))

    def write(self, data: bytes) -> None:
        """Write several lines at once, already encoded by `encoded_lines`; after a kill some of the first ones may be
        there without the others."""
        size = len(data)
        with write_errors(self.path):
            try:
                while data:
                    data = data[os.write(self._file, data) :]
            except OSError:
                with suppress(OSError):  # a device file cannot be cut
                    os.ftruncate(self._file, self._size)
                raise
        self._size += size

    def close(self) -> None:
        """Flush to the disk and close."""
        if self._file >= 0:
            file, self._file = self._file, -1
            with write_errors(self.path):
                try:
                    os.fsync(file)
                finally:
                    os.close(file)

    def __enter__(self) -> LineFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _cut_torn_line(path: Path) -> None:
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)


def read_lines(path: Path, foreign: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of every complete line. A last line without its newline was torn by a kill and is skipped;
    any other line that is not a JSON object raises `RecordBroken`. `foreign`, a description of the format, means that
    the file may be written by hand: blank lines are skipped, and the last line needs no newline."""
    data = path.read_bytes()
    whole = data if foreign else data[: data.rfind(b"\n") + 1]
    for number, raw in enumerate(whole.splitlines(), start=1):
        if foreign and not raw.strip():
            continue
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError):
            line = None
            fault = "not a JSON line"
        else:
            fault = "not a JSON object"
        if not isinstance(line, dict):
            raise RecordBroken(f"{path}:{number}", fault, *filter(None, [foreign]))
        yield number, line
