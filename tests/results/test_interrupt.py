"""Ctrl-C in programs that play: they end at once, leave no process running, and their runs can be resumed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentcho.records.record import find

pytestmark = pytest.mark.slow
HALTING = Path(__file__).with_name("halting.py")
WAYS = {
    "run": "agentcho.run({how}, display='none')",
    "notebook": "asyncio.new_event_loop().run_until_complete(playing(lambda: agentcho.run({how}, display='none')))",
    "arun": "asyncio.run(agentcho.arun({how}))",
    "trio": "trio.run(partial(agentcho.arun, {how}))",
}
PROGRAM = """
import asyncio, threading, trio
from functools import partial
import agentcho
async def playing(play):
    play()
try:
    {call}
except KeyboardInterrupt:
    for each in threading.enumerate():
        if each is not threading.main_thread() and not each.name.startswith("tool "):
            each.join(10)
            assert not each.is_alive(), each
    print("nothing is left", flush=True)
    raise
"""
SECONDS = 30.0
"""Timeout of a test, far longer than needed."""


def begun_by(pid: int) -> list[Path]:
    """The living child processes of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [Path("/proc", each) for task in tasks for each in (task / "children").read_text().split()]


def lives(process: Path) -> bool:
    """Whether a process runs, as opposed to being a zombie."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def interrupted(folder: Path, program: str, processes: bool) -> tuple[int, str, str]:
    """Starts a program and sends it SIGINT once it is under way: its exit code, standard output and standard error."""
    errors, out = folder / "errors", folder / "out"
    with errors.open("w") as stderr, out.open("w") as stdout:
        playing = subprocess.Popen([sys.executable, "-c", program], cwd=folder, stdout=stdout, stderr=stderr)
    try:
        end = time.monotonic() + SECONDS
        while not (folder / "under-way").exists():
            assert playing.poll() is None, errors.read_text()
            assert time.monotonic() < end
            time.sleep(0.01)
        begun = begun_by(playing.pid)
        assert bool(begun) == processes
        os.kill(playing.pid, signal.SIGINT)
        code = playing.wait(SECONDS)
    finally:
        playing.kill()
    assert not any(map(lives, begun))
    return code, out.read_text(), errors.read_text()


def record_of(folder: Path) -> Path:
    """The record of the run, as the program sees it."""
    return find("last", folder / "runs").path.relative_to(folder)


@pytest.mark.parametrize(
    ("way", "at"),
    [
        ("run", "speech"),
        ("run", "process"),
        ("notebook", "speech"),
        ("notebook", "process"),
        ("arun", "wait"),
        ("arun", "thread"),
        ("trio", "wait"),
    ],
)
def test_ctrl_c_ends_a_program_and_its_run_goes_on_later(tmp_path: Path, way: str, at: str) -> None:
    how = f"{str(HALTING)!r}, model='fake', out='runs', given={{'at': {at!r}}}, max_tokens=32"
    program = PROGRAM.format(call=WAYS[way].format(how=how))
    code, printed, errors = interrupted(tmp_path, program, at == "process")
    assert (code, printed) == (-signal.SIGINT, "nothing is left\n"), errors
    if way in ("run", "notebook"):
        *_, error, where, command = errors.splitlines()
        assert (error, where) == ("KeyboardInterrupt", f"everything said so far is recorded: {record_of(tmp_path)}")
        assert command == f"to continue: agentcho run --resume {record_of(tmp_path).name}"
    else:
        assert errors.endswith("KeyboardInterrupt\n")
    ours = re.findall(r"^\w[\w.]*(?:Error|Exception|Interrupt|Group|Failed)\b", errors, re.M)
    asyncios = ["asyncio.exceptions.CancelledError"] if way == "arun" else []  # asyncio.run turns Ctrl-C into this
    assert ours == [*asyncios, "KeyboardInterrupt"], errors
    assert not {"Exception ignored", "never awaited", "never retrieved", "was destroyed"} & set(errors.split("\n"))
    record = find("last", tmp_path / "runs")
    assert (record.status, record.finished()) == ("interrupted", {})
    said = [entry.message.text for entry in record.games()[0] if entry.ended is None]
    (tmp_path / "go").touch()
    again = [sys.executable, "-c", "from agentcho.cli import main; main()", "run", "--resume", "last"]
    subprocess.run(again, cwd=tmp_path, check=True, capture_output=True)
    after = [entry.message.text for entry in find("last", tmp_path / "runs").games()[0] if entry.ended is None]
    assert find("last", tmp_path / "runs").status == "done"
    assert after[: len(said)] == said
