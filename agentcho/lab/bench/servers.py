"""Runs chat servers as processes on this machine: ours, and that of transformers."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from agentcho.config import Markers
from agentcho.lab.bench.played import ArmUnavailable
from agentcho.runner.understudy import weights_path

UNDERSTUDY = "understudy"
MAIN = "from agentcho.cli import main; main()"
LOADING = 300.0
"""Seconds that a server may take to load its model."""
ENDING = 15.0
"""Seconds that it may take to end, before it is killed."""
ROOM, PAGE, PACKED = 1 << 15, 32, 4096
"""Tokens in the peer's cache, per page, and per forward. By default it takes most of the machine's memory, and pages
larger than most messages; prefixes are shared in whole pages."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


def ours(model: str, dtype: str, port: int, differs: Markers = "refuse") -> list[str]:
    """The command that runs `agentcho serve` in this Python, on the CPU like its peer. `differs`: its
    --template-differs."""
    served = ["--model", model, "--dtype", dtype, "--host", "127.0.0.1", "--port", str(port), "--record", "none"]
    served += ["--device", "cpu", "--template-differs", differs]
    return [sys.executable, "-c", MAIN, "serve", *served]


def peer(model: str, dtype: str, port: int, python: Path | None) -> list[str]:
    """The command of `transformers serve` with continuous batching on the CPU. `python`: that of an environment with
    transformers[serving]; None: the command `transformers`. `ArmUnavailable`: it is missing."""
    command = shutil.which("transformers")
    if python is None and command is None:
        raise ArmUnavailable(
            "the command `transformers` was not found; install transformers[serving], or give --peer-python"
        )
    program = [str(python), "-m", "transformers.cli.transformers"] if python is not None else [str(command)]
    room = ["--cb-block-size", str(PAGE), "--cb-num-blocks", str(ROOM // PAGE), "--cb-max-batch-tokens", str(PACKED)]
    where = ["--device", "cpu", "--dtype", dtype, "--host", "127.0.0.1", "--port", str(port)]
    return [*program, "serve", folder(model), "--continuous-batching", *room, *where]


def version_of(python: Path | None) -> str:
    """The version of transformers that serves as the peer; "none" if unknown."""
    command = None if python is None else [str(python), "-c", "import transformers; print(transformers.__version__)"]
    command = command or [str(shutil.which("transformers")), "version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | OFFLINE)
    except OSError:
        return "none"
    return f"transformers {said.stdout.split()[-1]}" if said.stdout.split() else "none"


def folder(model: str) -> str:
    """A model as transformers takes it: the folder of the embedded one, else its own name."""
    return str(weights_path()) if model == UNDERSTUDY else model


def free_port() -> int:
    """A port on which nothing listens now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running(command: Sequence[str], port: int) -> Iterator[int]:
    """Run a server: yields its process id at its first answer at /health, stops it at the end. `ArmUnavailable`: the
    server ended before that; has the last line that it wrote."""
    with logged(command, port) as (process, _):
        yield process


@contextmanager
def logged(command: Sequence[str], port: int) -> Iterator[tuple[int, str]]:
    """The same as `running`, and yields all that the server wrote before its first answer."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=os.environ | OFFLINE
        )
        try:
            _await(process, port, log)
            yield process.pid, _written(log)
        finally:
            _end(process)


def _await(process: subprocess.Popen[bytes], port: int, log: IO[bytes]) -> None:
    began = monotonic()
    while not _healthy(port):
        if process.poll() is not None:
            raise ArmUnavailable(f"the server did not start: {_last_line(log)}")
        if monotonic() - began > LOADING:
            raise ArmUnavailable(f"the server did not answer within {LOADING:.0f} seconds")
        sleep(0.1)


def _healthy(port: int) -> bool:
    line = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        line.request("GET", "/health")
        return line.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        line.close()


def _written(log: IO[bytes]) -> str:
    """The content of a log that another process still writes: pread leaves the shared file position unchanged."""
    return os.pread(log.fileno(), os.fstat(log.fileno()).st_size, 0).decode(errors="replace")


def _last_line(log: IO[bytes]) -> str:
    lines = _written(log).strip().splitlines()
    return lines[-1].strip("│ ")[:200] if lines else "it wrote nothing"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(ENDING)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
