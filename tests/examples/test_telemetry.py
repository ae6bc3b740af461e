"""The telemetry example prints its spans."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_debate_prints_its_spans() -> None:
    example = Path(__file__).parents[2] / "examples" / "telemetry.py"
    ran = subprocess.run([sys.executable, str(example)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert any("invoke_agent" in line and line.split()[-1].isdigit() for line in lines)
    assert lines[-1].endswith("invoke_workflow debate  ")
