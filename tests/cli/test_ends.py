"""How commands end from outside, in their own processes: signals, kills, full disks, readers that go away."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from agentcho.cli.signals import INTERRUPTED, tell_if_busy
from agentcho.games.runs.event_loops import playing_loop
from agentcho.records.record import SavedRun, find

from .conftest import PLAY, Command, one_line

MAIN = "from agentcho.cli import main; main()"
CHAIN = '''
import os, signal, time
import agentcho

class Chain(agentcho.Scenario):
    """Says one, does something to its own process, says two."""
    name = "chain"

    async def play(self, game):
        ada = game.cast(agentcho.Agent, name="ada", audience="everyone")
        await ada.say(header="one ")
        if game.index == 1:
            {what}
        await ada.say(header="two ")
        return self.Outcome()
'''

IGNORING = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
"""As for a background process of a script."""


def slow(*case: object) -> Any:
    """A case for the slow suite: each starts a process."""
    return pytest.param(*case, marks=pytest.mark.slow)


def ran(*words: str, before: str = "pass", **options: object) -> subprocess.CompletedProcess[str]:
    heard = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); {before}"
    command = [sys.executable, "-c", f"{heard}; {MAIN}", *words]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run(command, text=True, check=False, timeout=120, **streams)  # type: ignore[call-overload,no-any-return]


def chain(here: Path, what: str) -> str:
    (here / "chain.py").write_text(CHAIN.format(what=what))
    return "chain.py"


def last() -> SavedRun:
    return find("last", Path("runs"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "before"),
    [("SIGTERM", "pass"), ("SIGHUP", IGNORING), *(slow(*each) for each in (("SIGHUP", "pass"), ("SIGTERM", IGNORING)))],
)
def test_a_signal_ends_a_run_as_ctrl_c_does(here: Path, name: str, before: str) -> None:
    path = chain(here, f"os.kill(os.getpid(), signal.{name})")
    ended = ran("run", path, "--model", "fake", "--games", "3", "--at-once", "1", before=before)
    assert (ended.returncode, ended.stderr) == (128 + getattr(signal, name), "")
    assert "interrupted" in ended.stdout
    run = last()
    assert (run.status, sorted(run.finished())) == ("interrupted", [0])
    assert not (run.path / "writer.json").exists()


@pytest.mark.parametrize("busy", [True, False])
def test_a_busy_loop_is_told_of_after_ctrl_c(busy: bool, capsys: pytest.CaptureFixture[str]) -> None:
    async def playing() -> None:
        with playing_loop():
            if busy:
                tell_if_busy(threading.Event(), 0)  # the loop cannot react before it returns
            else:
                await asyncio.to_thread(tell_if_busy, threading.Event(), 60)

    asyncio.run(playing())
    assert capsys.readouterr().err == ("stopping; press Ctrl-C again to stop at once\n" if busy else "")
    tell_if_busy(threading.Event(), 0)
    assert capsys.readouterr().err == ""  # nothing plays any more


@pytest.mark.slow
def test_a_second_ctrl_c_stops_code_that_never_awaits(here: Path) -> None:
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    path = chain(here, "open('busy', 'w').close()\n            while True: pass")
    words = [sys.executable, "-c", f"{code}; {MAIN}", "run", path, "--model", "fake", "--games", "2"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not (here / "busy").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == "stopping; press Ctrl-C again to stop at once\n"
        process.send_signal(signal.SIGINT)
        assert "interrupted" in process.communicate(timeout=60)[0]
    assert process.returncode == INTERRUPTED


@pytest.mark.slow
def test_a_library_call_leaves_signals_alone(here: Path) -> None:
    code = (
        "import signal, agentcho; from agentcho.testing import FakeEngine; before = signal.getsignal(signal.SIGTERM)\n"
        "class Ann(agentcho.Agent):\n"
        "    async def run(self):\n"
        "        assert signal.getsignal(signal.SIGTERM) is before\n"
        "        await self.say()\n"
        "agentcho.run(Ann('ann'), engine=FakeEngine(), display='none')"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_nohup_stays(here: Path) -> None:
    path = chain(here, "os.kill(os.getpid(), signal.SIGHUP)")
    code = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); {MAIN}"
    words = [sys.executable, "-c", code, "run", path, "--model", "fake", "--games", "3"]
    assert subprocess.run(words, check=False, stdout=subprocess.DEVNULL).returncode == 0
    assert last().status == "done"


@pytest.mark.slow
def test_a_killed_run_has_died(agentcho: Command, here: Path) -> None:
    path = chain(here, "os.kill(os.getpid(), signal.SIGKILL)")
    assert ran("run", path, "--model", "fake", "--games", "3", "--at-once", "1").returncode == -signal.SIGKILL
    run = last()
    assert (run.info.status, run.status) == ("running", "died")
    assert run.writer is not None
    assert " died " in agentcho("ls", "--runs").out
    shown = agentcho("show", "last").out
    assert f"died (process {run.writer.pid} on {run.writer.host}, since " in shown
    assert "1 of 3 games over" in shown
    audited = agentcho("audit", "last")
    assert audited.code == 3
    assert "the run's status is died" in audited.out


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    "words",
    [
        (*PLAY, "--out", "file"),
        (*PLAY, "--out", "file/runs"),
        ("audit", "prisoners-dilemma", "--model", "fake", "--out", "file"),
        ("compare", "multi-qa", "--model", "fake", "--out", "file"),
        ("compare", "multi-qa", "--model", "fake", "--json", "file/r.json"),
        ("compare", "multi-qa", "--model", "fake", "--json", "."),
        ("trace", "multi-qa", "--model", "fake", "--out", "file/t.jsonl"),
        ("trace", "multi-qa", "--model", "fake", "--out", "."),
        ("tune", "multi-qa", "--traces", "file", "--out", "file"),
    ],
)
def test_where_nothing_can_be_written_it_is_said_before_a_model_is_loaded(
    agentcho: Command, here: Path, words: tuple[str, ...]
) -> None:
    (here / "file").write_text("mine")
    assert "nothing can be written to " in one_line(agentcho(*words))
    assert (here / "file").read_text() == "mine"
    assert [path.name for path in here.iterdir()] == ["file"]


HELD = f"""
import sys
from pathlib import Path
from typing import Any
from agentcho.records.writer_lock import WriterLock
held = WriterLock(Path(sys.argv.pop(1)))
{MAIN}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claim", "words"),
    [
        slow("c/writer.json", ("compare", "multi-qa", "--model", "fake", "-n", "1", "--out", "c")),
        (".t.jsonl.writer.json", ("trace", "multi-qa", "--model", "fake", "-n", "1", "--out", "t.jsonl")),
        slow("a/writer.json", ("tune", "multi-qa", "--traces", "x.jsonl", "--out", "a")),
    ],
)
def test_a_second_writer_is_refused_and_told_of_the_first(here: Path, claim: str, words: tuple[str, ...]) -> None:
    (here / "x.jsonl").touch()
    (here / claim).parent.mkdir(exist_ok=True)
    ended = subprocess.run(
        [sys.executable, "-c", HELD, claim, *words], capture_output=True, text=True, check=False, timeout=120
    )
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "is being written by process " in ended.stderr


@pytest.mark.slow
def test_a_disk_that_fills_up_is_one_line_and_what_was_over_stays(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.test_disk import Disk

    words = (*PLAY, "--games", "6", "--at-once", "1")
    agentcho(*words)
    size = sum((last().path / name).stat().st_size for name in ("transcript.jsonl", "outcomes.jsonl"))
    with monkeypatch.context() as patch:
        patch.setattr("os.write", Disk(size // 2 + 500))
        ended = agentcho(*words)
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "No space left on device" in ended.err
    run = last()
    assert run.status == "failed"
    assert 0 < len(run.finished()) < 6
    assert all((run.path / name).read_bytes().endswith(b"\n") for name in ("transcript.jsonl", "outcomes.jsonl"))


@pytest.mark.slow
def test_a_full_standard_output_is_one_line(here: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no full device")
    with Path("/dev/full").open("w") as full:
        ended = ran(*PLAY, stdout=full)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[0] == "error: No space left on device"
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_a_reader_that_goes_away_is_told_and_nothing_is_lost(here: Path) -> None:
    words = [sys.executable, "-c", MAIN, *PLAY, "--games", "20", "--at-once", "1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        told = running.stderr.read()
    assert running.returncode == 1
    assert told.count("\n") == 1
    assert told.startswith("error: the reader of standard output has closed it; everything said so far is recorded")
    assert last().status == "interrupted"
    assert last().finished()


@pytest.mark.slow
def test_a_reader_that_reads_no_further_is_no_failure_to_tell_of(agentcho: Command, here: Path) -> None:
    agentcho(*PLAY)
    command = [sys.executable, "-c", MAIN, "show", "last"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        told = running.stderr.read()
    assert (running.returncode, told) == (141, "")


@pytest.mark.slow
def test_streams_that_are_closed_or_full_are_no_traceback(agentcho: Command, here: Path) -> None:
    agentcho(*PLAY)
    words = [sys.executable, "-c", MAIN, "audit", "last"]
    shell = ["sh", "-c", 'exec "$@" >&- 2>&- <&-', "sh", *words]
    assert subprocess.run(shell, check=False).returncode == 0
    if Path("/dev/full").exists():
        with Path("/dev/full").open("w") as full:
            ended = ran("show", "last", stdout=full)
        assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
        assert ended.stderr.endswith("No space left on device\n")
