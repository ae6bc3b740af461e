"""Runs the project's tests on the device: those of the kernel, and those of the engine."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tools.bench.gpu_day.day import Day
from tools.bench.gpu_day.lacks import ROOT

KERNEL = (
    "tests/engine/test_paged.py",
    "tests/engine/test_fewer_kernels.py",
    "tests/engine/test_turned.py",
    "-m",
    "slow or not slow",
)
ENGINE = tuple(
    f"tests/engine/test_{name}.py"
    for name in ("stored", "graphs", "flex", "engine", "slots", "memory", "families", "sampling", "steps")
)
QUICK = ("-m", "not (slow or nightly or browser or server or clients or cluster)")
FEW = ("tests/engine/test_slots.py",)
"""For a CPU, on which all of them run elsewhere."""
TOLD = re.compile(r"(\d+) (passed|failed|errors?|skipped|deselected|warnings?)")


class Failed(Exception):
    """Tests failed."""


def kernel(day: Day) -> None:
    """Compiled on a GPU, interpreted elsewhere. `Failed`: some tests fail."""
    _run(day, KERNEL if day.asked.device != "cpu" else (*KERNEL, "-k", "definition"))


def engine(day: Day) -> None:
    """On the requested device. `Failed`: some tests fail."""
    _run(day, (*(ENGINE if day.asked.device != "cpu" else FEW), *QUICK))


def _run(day: Day, usual: tuple[str, ...]) -> None:
    given = usual if day.asked.suites is None else day.asked.suites
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", "addopts=", "--tb=short", "-rf", *given]
    own = os.environ | {"AGENTCHO_TEST_DEVICE": day.asked.device}
    own.pop("TRITON_INTERPRET", None)  # the tests set it themselves
    ran = subprocess.run(words, cwd=ROOT, env=own, capture_output=True, text=True, check=False)
    lines = [line for line in ran.stdout.splitlines() if line.strip()]
    day.keep("tests", " ".join(given))
    day.keep("counts", {what: int(count) for count, what in TOLD.findall(lines[-1] if lines else "")})
    if ran.returncode:
        day.keep("failed", [line for line in lines if line.startswith(("FAILED", "ERROR"))][:100])
        day.keep("output", (ran.stdout + ran.stderr)[-20_000:])
        raise Failed(f"pytest ended with {ran.returncode}: {(lines or [ran.stderr.strip()])[-1]}")
