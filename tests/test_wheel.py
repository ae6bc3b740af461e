"""The wheel: what is in it, and that it works away from the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(words, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


def test_it_carries_the_library_inside_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"agentcho"}
    for folder in ("agents", "scenarios"):
        shipped = {f"agentcho/_library/{folder}/{path.name}" for path in (ROOT / folder).glob("*.py")}
        assert len(shipped) >= 2
        assert shipped <= names
    package = {str(path.relative_to(ROOT)) for path in (ROOT / "agentcho").rglob("*") if path.is_file()}
    assert {name for name in package if "__pycache__" not in name} <= names
    assert "agentcho/py.typed" in names
    assert ZipFile(wheel).testzip() is None
    assert wheel.stat().st_size < 20e6


def test_it_lists_and_plays_from_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    ZipFile(wheel).extractall(target)
    environment = os.environ | {"PYTHONPATH": str(target), "PYTHONSAFEPATH": "1"}

    def command(*words: str) -> str:
        code = "import agentcho.cli; assert agentcho.__file__.startswith(__import__('sys').argv[1]); "
        code += "del __import__('sys').argv[1]; agentcho.cli.main()"
        ran = subprocess.run(
            [sys.executable, "-c", code, str(target), *words], cwd=tmp_path, env=environment, text=True,
            capture_output=True, check=True,
        )  # fmt: skip
        return ran.stdout

    assert re.search(r"prisoners-dilemma +shipped ", command("ls"))
    assert "outcome" in command("run", "prisoners-dilemma", "--model", "fake", "--max-tokens", "8")
    assert command("cp", "debater").strip() == "agents/debater.py"
