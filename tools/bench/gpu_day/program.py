"""`python -m tools.bench gpu-day`: runs each part in another process, which may die, and keeps what it reports.

Needs only Python's standard library. If a part needs something that this machine lacks, that is reported, and the part
is skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from typing import IO, Any

from tools.bench.gpu_day.asked import Asked
from tools.bench.gpu_day.lacks import ROOT, missing, to_carry, unpacked
from tools.bench.gpu_day.parts import PARTS, Part, chosen
from tools.bench.gpu_day.result import ResultFile

SHAPE, SMALL_MODEL = "shape:llama-3.1-8b", "understudy"
GRACE = 45.0
"""Seconds that the last part may continue after no more parts are started."""
CARRY = ". Carry the wheels, and give --wheels: "
TAIL = 4000
"""Number of characters that are kept of a dead process's output."""


def main(words: Sequence[str]) -> int:
    """Run the command. Returns 0, 1 if a part failed or nothing could be measured, 2 for invalid arguments, or 130
    after Ctrl-C or `kill`."""
    given = _parser().parse_args(words)
    for asking in (signal.SIGINT, signal.SIGTERM):
        signal.signal(asking, signal.default_int_handler)
    try:
        parts = chosen(given.part)
        paths = unpacked(given.wheels) if given.wheels is not None else []
    except ValueError as error:
        print(f"gpu-day: {error}", file=sys.stderr)
        return 2
    model = given.model or (SMALL_MODEL if given.device == "cpu" else SHAPE)
    asked = Asked(given.device, model, given.seed, None if given.tests is None else tuple(given.tests.split()))
    command = f"python -m tools.bench gpu-day {shlex.join(_public(words))}".strip()
    result = ResultFile(given.json, command, {**asked._asdict(), "seconds": given.seconds})
    return Run(asked, result, given.seconds, paths).run(parts)


def _public(words: Sequence[str]) -> Iterator[str]:
    """The arguments, with paths reduced to their last component."""
    for word in words:
        yield Path(word).name if "/" in word and not word.startswith("shape:") else word


def _parser() -> argparse.ArgumentParser:
    about = "Everything about one GPU in ten minutes, into one file: needs no network, no pip and no installation."
    parser = argparse.ArgumentParser(prog="python -m tools.bench gpu-day", description=about)
    parser.add_argument("--json", type=Path, default=Path("gpu.json"), metavar="FILE", help="default: gpu.json")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N; cpu, to try the program with a small model")
    parser.add_argument("--model", help=f"default: {SHAPE}, on a CPU {SMALL_MODEL}")
    parser.add_argument("--seconds", type=float, default=540.0, help="no part begins after so many; default: 540")
    parser.add_argument("--part", action="append", metavar="NAME", help="one or more of: " + ", ".join(_names()))
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="wheels of what is not installed here")
    parser.add_argument("--tests", metavar="WORDS", help="what pytest is given in place of the usual tests")
    parser.add_argument("--seed", type=int, default=1, help="of random words; default: 1")
    return parser


def _names() -> Iterator[str]:
    return (part.name for part in PARTS)


class Run:
    """One run, part after part. `paths`: folders of packages that are not installed."""

    def __init__(self, asked: Asked, result: ResultFile, seconds: float, paths: Sequence[str]) -> None:
        self._asked, self._result, self._seconds = asked, result, seconds
        self._began = monotonic()
        self._environment = _environment(asked.device, paths)
        sys.path[:0] = paths
        self._worker: Worker | None = None
        self._unusable: str | None = None
        self._lacking = dict[str, None]()

    def run(self, parts: Sequence[Part]) -> int:
        """Run the parts; return the exit code."""
        self._result.write()
        states, how = list[str](), "interrupted"
        try:
            for number, part in enumerate(parts):
                states.append(self._run(number, len(parts), part))
            how = "time was up" if "late" in states else "whole"
        except KeyboardInterrupt:
            print("gpu-day: interrupted; what was measured is in the file", file=sys.stderr)
            return 130
        finally:
            self._end()
            self._result.close(how)
        if self._lacking:
            print(f"gpu-day: what is not installed here{CARRY}{to_carry(self._lacking)}", file=sys.stderr)
        return 0 if "done" in states and "failed" not in states else 1

    def _run(self, number: int, count: int, part: Part) -> str:
        """Run one part; return its final state."""
        if self._second >= self._seconds:
            self._result.never(part, f"it was not begun: {self._seconds:g} seconds were over")
            return "late"
        if (why := self._why_not(part)) is not None:
            self._result.never(part, why)
            self._say(number, count, part, f"skipped: {why.partition(CARRY)[0]}")
            return "skipped"
        self._result.begin(part, self._second)
        began = monotonic()
        latest = min(began + part.limit, self._began + self._seconds + GRACE)
        ended = self._measure(part, latest)
        self._result.end(**ended, seconds=round(monotonic() - began, 1))
        why = str(ended.get("why", ""))
        if part.name == "machine" and ended["state"] == "skipped":
            self._unusable = why
        self._say(number, count, part, f"{ended['state']} in {monotonic() - began:.0f} s{why and f': {why}'}")
        return str(ended["state"])

    def _measure(self, part: Part, latest: float) -> dict[str, Any]:
        self._worker = self._worker or Worker(self._asked, self._environment)
        self._worker.ask(part)
        for told in self._worker.told(latest):
            if "machine" in told:
                self._result.learn(told["machine"])
            elif "key" in told:
                self._result.keep(told["key"], told["value"])
            else:
                if told.pop("broken", False):
                    self._end()
                return dict(told)
        alive, said = self._worker.alive, self._worker.said()
        self._end()
        what = f"it took longer than {part.limit:g} s, or than was left" if alive else f"its process ended ({said[0]})"
        return {"state": "failed", "why": what, "traceback": said[1]}

    def _why_not(self, part: Part) -> str | None:
        """Why a part cannot run here."""
        if self._unusable is not None:
            return self._unusable
        if part.gpu_only and self._asked.device == "cpu":
            return "only a GPU has this"
        lacking = missing(("torch", *part.needs))
        if not lacking:
            return None
        self._lacking |= dict.fromkeys(lacking)
        return f"not installed here: {', '.join(lacking)}{CARRY}{to_carry(lacking)}"

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    @property
    def _second(self) -> float:
        return monotonic() - self._began

    def _say(self, number: int, count: int, part: Part, what: str) -> None:
        print(f"gpu-day: {number + 1} of {count} parts ({part.name}): {what}", file=sys.stderr, flush=True)


def _environment(device: str, paths: Sequence[str]) -> dict[str, str]:
    """The environment of the other process: it imports this checkout, and on a CPU Triton's interpreter runs the
    kernel."""
    own = dict(os.environ)
    own["PYTHONPATH"] = os.pathsep.join([str(ROOT), *paths, *filter(None, [own.get("PYTHONPATH")])])
    own["TRITON_INTERPRET"] = "1" if device == "cpu" else "0"
    own["HF_HUB_OFFLINE"] = "1"
    return own


class Worker:
    """The other process. It is sent parts as lines, and answers with lines of JSON on a separate pipe."""

    def __init__(self, asked: Asked, environment: Mapping[str, str]) -> None:
        self._log: IO[bytes] = TemporaryFile()  # noqa: SIM115  closed in `end`
        read, write = os.pipe()
        words = [sys.executable, "-m", "tools.bench.gpu_day.worker", str(write), json.dumps(asked._asdict())]
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            pass_fds=[write],
            env=environment,
            cwd=ROOT,
            start_new_session=True,  # Ctrl-C reaches only the program, which ends this process
        )
        os.close(write)
        self._pipe, self._kept = read, b""
        os.set_blocking(read, False)

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def ask(self, part: Part) -> None:
        """Have it run a part. If it has died, that is noticed when its answer is read."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{part.place}\n".encode())
            self._process.stdin.flush()

    def told(self, latest: float) -> Iterator[dict[str, Any]]:
        """What it reports, until it ends or the time is over."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            while (left := latest - monotonic()) > 0:
                if not selector.select(left):
                    return
                if not (more := os.read(self._pipe, 1 << 16)):
                    self._process.wait()
                    return
                *lines, self._kept = (self._kept + more).split(b"\n")
                yield from map(json.loads, lines)

    def said(self) -> tuple[str, str]:
        """How it ended, and the end of its output."""
        code = self._process.poll()
        self._log.seek(0)
        text = self._log.read().decode(errors="replace")[-TAIL:]
        return (f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"), text

    def end(self) -> None:
        """Kill it with all of its subprocesses."""
        if self.alive:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        os.close(self._pipe)
        self._log.close()
