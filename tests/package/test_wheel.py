"""The wheel and the source distribution: their contents, and that the wheel works outside the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent.parent

pytestmark = pytest.mark.slow


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
            [sys.executable, "-c", code, str(target), *words],
            cwd=tmp_path,
            env=environment,
            text=True,
            capture_output=True,
            check=True,
        )
        return ran.stdout

    assert re.search(r"prisoners-dilemma +shipped ", command("ls"))
    assert "outcome" in command("run", "prisoners-dilemma", "--model", "fake", "--max-tokens", "8")
    assert command("cp", "debater").strip() == "agents/debater.py"


def test_it_says_what_it_is(wheel: Path) -> None:
    (named,) = (name for name in ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA"))
    told = message_from_bytes(ZipFile(wheel).read(named))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (told["Name"], told["Version"]) == ("agentcho", project["version"])
    assert (told["License-Expression"], told["License-File"]) == ("Apache-2.0", "LICENSE")
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= set(
        told.get_all("Classifier", [])
    )
    assert told["Description-Content-Type"] == "text/markdown"
    assert "# agentcho" in told.get_payload()


def test_from_the_source_distribution_all_can_be_made_and_tested(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    kept = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    assert {name for name in kept if name and not name.startswith((".ci/", "."))} <= names
    assert not any(name.startswith((".venv", "runs/", ".git/", ".ci/")) for name in names)
    assert sdist.stat().st_size < 40e6


def test_what_is_published_reads_as_it_should(dist: Path) -> None:
    files = sorted(map(str, dist.iterdir()))
    ran = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    assert ran.stdout.count("PASSED") == 2
