"""Shows which kernel variants Triton compiles for a GPU that is not present, in a separate process.

Nothing is launched: the programs call `warmup` instead of launching.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]


class FakeDriver:
    """A driver for an H100 that is not present."""

    def get_current_target(self) -> Any:
        """See Triton's `DriverBase`."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        """See Triton's `DriverBase`."""
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        """See Triton's `DriverBase`."""
        return 0

    def get_device_interface(self) -> Any:
        """See Triton's `DriverBase`."""
        return torch.cuda

    def get_active_torch_device(self) -> torch.device:
        """See Triton's `DriverBase`."""
        return torch.device("cuda", 0)

    def map_python_to_cpp_type(self, kind: str) -> str:
        """See Triton's `DriverBase`."""
        return kind


def pretend() -> None:
    """Make Triton compile for that GPU from now on, in this process."""
    from triton.runtime import driver

    driver.set_active(FakeDriver())


def printed(program: str, cache: Path) -> str:
    """The output of a program that compiles for that GPU into its own `cache`. AssertionError: the program failed."""
    begin = "from tests.engine.compiled import pretend\npretend()\n"
    own = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(cache)}
    words = [sys.executable, "-c", begin + program]
    done = subprocess.run(words, env=os.environ | own, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
