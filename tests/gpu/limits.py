"""Counts of kernels, registers and bytes, taken without a GPU, that may only go down: `limits.json` holds the limits,
which are lowered from time to time. `python -m tests.gpu` prints them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("limits.json")
ROOT = Path(__file__).parents[2]
AIMS: Mapping[str, int] = {
    "kernels, a decode step of 1 row over 8k": 700,
    "kernels, a decode step of 8 rows over 8k": 700,
    "kernels, a decode step of 4 rows over contexts of other lengths each": 700,
    "kernels, a tail of 64 tokens over 8k": 400,
    "MB, 2 rows over 8k and their shadows": 100,
    "registers, llama-3.1-8b, stored, sm_80": 128,
    "registers, llama-3.1-8b, stored, sm_90": 128,
    "stack, llama-3.1-8b, stored, sm_80": 0,
    "stack, llama-3.1-8b, stored, sm_90": 0,
    "loop, llama-3.1-8b, stored, sm_80": 700,
    "loop, llama-3.1-8b, stored, sm_90": 700,
}
"""Goals for some of the counts."""


def committed() -> dict[str, int]:
    """The limit of each count."""
    found: dict[str, int] = json.loads(FILE.read_bytes())
    return found


def lower(counted: Mapping[str, int]) -> None:
    """Lower the limits to the counts; no limit is raised."""
    most = {name: min(number, counted.get(name, number)) for name, number in committed().items()}
    FILE.write_text(json.dumps(most, indent=4) + "\n")


def asked(module: str) -> dict[str, Any]:
    """The counts of a module of this folder, from a process in which Triton compiles."""
    own = os.environ | {"TRITON_INTERPRET": "0", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", f"tests.gpu.{module}", "--json"]
    ran = subprocess.run(words, cwd=ROOT, env=own, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def of_steps(found: Mapping[str, Any]) -> dict[str, int]:
    """The counts of `fake`."""
    counted = {f"kernels, {name}": each["kernels"] for name, each in found.items() if "kernels" in each}
    moved = {f"transfers, {name}": _transfers(each) for name, each in found.items() if "transfers" in each}
    taken = {f"MB, {name}": each["bytes"] // 1_000_000 for name, each in found.items() if "bytes" in each}
    return counted | moved | taken


def of_spread(found: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """The counts of `spread`."""
    return {f"transfers between two GPUs, {name}": sum(moved.values()) for name, moved in found.items()}


def _transfers(found: Mapping[str, Any]) -> int:
    return sum(len(sizes) for sizes in found["transfers"].values())


def of_kernels(found: Mapping[str, Any]) -> dict[str, int]:
    """The counts of `compiled`."""
    named = (("registers", "registers"), ("stack", "stack"), ("loop", "loop"))
    return {f"{what}, {name}": use[key] for what, key in named for name, use in found.items()}
