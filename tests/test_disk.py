"""Files are written as a whole or not at all, have a single writer, and dead writers are recognized."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from agentcho.cli.outputs import fault_of
from agentcho.errors import CannotWrite, RecordInUse
from agentcho.records import writer_lock
from agentcho.records.files import LineFile, check_file, check_folder, read_lines, replace_whole, write_output
from agentcho.records.writer_lock import WriterLock, alive, beside, check, read

FULL = Path("/dev/full")


class Disk:
    """`os.write` on a disk with room for `room` more bytes."""

    def __init__(self, room: int) -> None:
        self.room, self._write = room, os.write

    def __call__(self, file: int, data: bytes) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._write(file, data[: self.room])
        self.room -= written
        return written


def test_a_line_that_does_not_fit_is_not_there_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = {"text": "x" * 20}
    size = len(json.dumps(line)) + 1
    for room in range(2 * size, 3 * size):
        path = tmp_path / f"{room}.jsonl"
        disk = Disk(room)
        with monkeypatch.context() as patch, LineFile(path) as lines:
            patch.setattr("os.write", disk)
            lines.append(line)
            lines.append(line)
            with pytest.raises(CannotWrite, match="No space left on device"):
                lines.append(line)
            disk.room = 10 * size
            lines.append(line)
        assert [each for _, each in read_lines(path)] == [line] * 3
        assert path.read_bytes().count(b"\n") == 3


@pytest.mark.skipif(not FULL.exists(), reason="this system has no full device")
def test_a_device_that_is_full_is_told_in_a_line() -> None:
    with pytest.raises(CannotWrite, match=r"cannot write .*/dev/full: No space left"):
        replace_at(FULL)


def replace_at(path: Path) -> None:
    """Append to a device file."""
    lines = LineFile.__new__(LineFile)
    lines.path, lines._size = path, 0
    lines._file = os.open(path, os.O_WRONLY)
    try:
        lines.append({})
    finally:
        os.close(lines._file)


def test_a_file_is_replaced_whole_or_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    replace_whole(path, "old")
    monkeypatch.setattr("os.fsync", lambda file: Disk(0)(file, b"x"))
    with pytest.raises(CannotWrite):
        replace_whole(path, "new")
    assert path.read_text() == "old"


def test_an_output_goes_through_links_and_into_pipes(tmp_path: Path) -> None:
    link, there = tmp_path / "link", tmp_path / "there"
    link.symlink_to(there)
    for words in ("first", "second"):
        assert fault_of(link) is None
        write_output(link, words)
        assert (link.is_symlink(), there.read_text()) == (True, words)
    reading, writing = os.pipe()
    write_output(Path(f"/dev/fd/{writing}"), "piped")
    assert os.read(reading, 9) == b"piped"
    os.close(reading)
    os.close(writing)
    (tmp_path / "shared").write_text("before ")
    with (tmp_path / "shared").open("a") as shared:
        write_output(Path(f"/dev/fd/{shared.fileno()}"), "and after")
    assert (tmp_path / "shared").read_text() == "before and after"
    write_output(tmp_path / "new" / "file", b"made")
    assert (tmp_path / "new" / "file").read_bytes() == b"made"


def test_a_named_pipe_is_not_opened_before_it_is_written(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    assert fault_of(pipe) is None
    check_file(pipe)
    with ThreadPoolExecutor(1) as threads:
        read = threads.submit(pipe.read_bytes)
        write_output(pipe, "through")
        assert read.result() == b"through"


def test_a_pipe_whose_reader_has_gone_is_no_refusal(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        write_output(Path(f"/dev/fd/{writing}"), "nobody reads")
    os.close(writing)


def test_where_results_can_go_is_known_without_a_trace(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b")
    check_file(tmp_path / "a" / "b.jsonl")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("mine")
    for wrong, why in ((tmp_path / "file", "it is a file"), (tmp_path / "file" / "deep" / "er", "file is a file")):
        with pytest.raises(CannotWrite, match=why):
            check_folder(wrong)
    with pytest.raises(CannotWrite, match="it is a folder"):
        check_file(tmp_path)
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    with pytest.raises(CannotWrite):
        check_folder(tmp_path / "nowhere" / "x")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("folder", ["/proc", "/sys"])
def test_a_folder_that_takes_no_files_is_refused(folder: str) -> None:
    if not Path(folder).is_dir():
        pytest.skip("this system has no such folder")
    with pytest.raises(CannotWrite):
        check_folder(Path(folder) / "runs")


HOLD = """
import os, sys, time
from pathlib import Path
from agentcho.records.writer_lock import WriterLock
writer = WriterLock(Path(sys.argv[1]))
print(os.getpid(), flush=True)
sys.stdin.readline()
os.kill(os.getpid(), 9) if sys.argv[2] == "killed" else writer.close()
"""


@pytest.mark.parametrize("end", ["killed", "closed"])
def test_another_process_is_refused_until_the_first_ends(tmp_path: Path, end: str) -> None:
    file = tmp_path / "writer.json"
    words = [sys.executable, "-c", HOLD, str(file), end]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        pid = int(other.stdout.readline())
        assert alive(file)
        for refused in (lambda: WriterLock(file), lambda: check(file)):
            with pytest.raises(RecordInUse, match=f"{tmp_path} is being written by process {pid} on ") as info:
                refused()
            assert info.value.pid == pid
        other.communicate("\n")
    assert not alive(file)
    assert (read(file) is not None) == (end == "killed")
    check(file)
    with WriterLock(file) as mine:
        assert mine.who == read(file)
        assert mine.who.pid == os.getpid()
        with pytest.raises(RecordInUse):
            WriterLock(file)
    assert not file.exists()


def test_a_look_does_not_keep_a_writer_out(tmp_path: Path) -> None:
    file = tmp_path / "writer.json"
    file.write_text("{}")
    assert not alive(file)
    with WriterLock(file):
        assert alive(file)
    WriterLock(file).close()


def test_without_locks_a_heartbeat_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_lock, "fcntl", None)
    file = beside(tmp_path / "t.jsonl")
    with WriterLock(file, tmp_path / "t.jsonl"):
        assert alive(file)
        with pytest.raises(RecordInUse, match=r"t\.jsonl is being written"):
            WriterLock(file, tmp_path / "t.jsonl")
        old = time.time() - 2 * writer_lock.STILL
        os.utime(file, (old, old))
        assert not alive(file)
        WriterLock(file).close()


def test_a_heart_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beats = list[Path]()
    monkeypatch.setattr(writer_lock, "BEAT", 0.001)
    beaten = Event()

    def beat(file: Path) -> None:
        beats.append(file)
        beaten.set()

    monkeypatch.setattr("os.utime", beat)
    monkeypatch.setattr(writer_lock, "HEARTBEAT", writer_lock.Heartbeat())
    with WriterLock(tmp_path / "writer.json"):
        assert beaten.wait(10)
    assert beats[0] == tmp_path / "writer.json"


def test_one_heart_beats_for_all_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heart = writer_lock.Heartbeat()
    monkeypatch.setattr(writer_lock, "HEARTBEAT", heart)
    others = set(threading.enumerate())
    claims = [WriterLock(tmp_path / f"{number}.json") for number in range(20)]
    assert [thread.name for thread in threading.enumerate() if thread not in others] == ["heartbeat"]
    for claim in claims:
        claim.close()
    with WriterLock(tmp_path / "later.json"):
        assert heart.beats
