"""The example in which a program of its own asks a person."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "person.py"


def test_somebody_guesses_and_reads_no_secret() -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE), "fake"], input="sun\nmoon\n", capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    talk, _, end = ran.stdout.partition("! it is not one of the 3 choices")
    assert "Choose a word." not in talk
    assert "ann: My word: " in talk
    assert "'right': " in end
