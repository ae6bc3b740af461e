"""Type checkers on code that uses the installed package: no errors for correct code, one for each wrong option."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

pytestmark = pytest.mark.slow

CONSUMER = '''# pyright: strict
"""A user's module."""

from typing import assert_type

from pydantic import BaseModel

import agentcho
from agentcho import Agent, Game, Message, Scenario, View


class Plan(BaseModel):
    words: list[str]


class Talker(Agent):
    role = "talker"
    audience = "everyone"

    async def run(self) -> None:
        said = await self.say(to="everyone", prompt="Well?", header="So: ", max_tokens=8, temperature=0.5, stop=["."])
        assert_type(said, Message)
        assert_type(said.text, str)
        assert_type(await self.think(view=View.of(()), top_k=1, seed=3, choices=["a", "b"]), Message)
        await self.think(view=lambda readable: View.of(readable[-1:]), top_p=0.9)
        assert_type(await self.choose(["yes", "no"], to=["bob"], temperature=0), str)
        assert_type(await self.ask("Yes?", ["yes", "no"], header="I say "), str)
        assert_type(await self.answer(Plan, prompt="Plan.", max_tokens=64), Plan)
        async with self.stream(min_p=0.1) as pieces:
            async for piece in pieces:
                assert_type(piece, str)
        await self.say("everyone")  # wrong
        await self.say(max_token=8)  # wrong
        await self.think("x", temperatur=1.0)  # wrong
        await self.think(stop=".")  # wrong
        await self.choose(["a"], json_schema={})  # wrong
        await self.answer(Plan, choices=["a"])  # wrong
        await self.say(header=3)  # wrong
        await self.say(view="all")  # wrong
        self.stream(Prompt="x")  # wrong
        agentcho.Sampling(max_token=3)  # wrong


class Talk(Scenario):
    """Two talk."""

    name = "talk"

    async def play(self, game: Game) -> Scenario.Outcome:
        ann = game.cast(Talker, "ann")
        assert_type(ann, Talker)
        assert_type(await game.announce("Talk."), str)
        await game.play_agents(ann, game.cast(Talker, "bob", system="You are Bob."))
        return self.Outcome()


def talk() -> None:
    played = agentcho.run(Talk(), games=2, seed=1)
    assert_type([game.error for game in played.games], list[str | None])
    engine = agentcho.Engine.load("understudy", device="cpu")
    rules = engine.prefill("Be brief.", role="system")
    assert_type(rules, int)
    assert_type(engine.decode("So", parents=[rules], sampling=agentcho.Sampling(max_tokens=3)), int)
    engine.prefill(3)  # wrong
'''
WRONG = [number for number, line in enumerate(CONSUMER.splitlines(), 1) if line.endswith("# wrong")]
CONFIG = """
[mypy]
strict = true
[mypy-torch.*,transformers.*]
follow_imports = skip
"""
"""Skips packages that mypy would take minutes to read; no public name that the consumer uses has one of their types."""
CLEAN = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
"""The environment without local paths, so that the installed package is checked."""
Check = Callable[[Path, Path], dict[int, str]]


def mypy(python: Path, file: Path) -> dict[int, str]:
    """mypy's errors by line for a file, in the environment of an interpreter."""
    (file.parent / "mypy.ini").write_text(CONFIG)
    words = [sys.executable, "-m", "mypy", "--python-executable", str(python), "--config-file=mypy.ini", file.name]
    ran = subprocess.run(words, cwd=file.parent, env=CLEAN, capture_output=True, text=True)
    assert ran.returncode in (0, 1), ran
    found = (line.split(":", 2) for line in ran.stdout.splitlines() if ": error:" in line)
    return {int(line): told for _, line, told in found}


def pyright(python: Path, file: Path) -> dict[int, str]:
    """pyright's errors by line."""
    words = [sys.executable, "-m", "pyright", "--pythonpath", str(python), "--outputjson", file.name]
    ran = subprocess.run(words, cwd=file.parent, env=CLEAN, capture_output=True, text=True)
    assert ran.returncode in (0, 1), ran
    found = json.loads(ran.stdout)["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1: each["message"] for each in found if each["severity"] == "error"}


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and its dependencies installed."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    ZipFile(wheel).extractall(site)
    (site / "needed.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    return folder / "bin" / "python"


@pytest.mark.parametrize("check", [mypy, pyright])
def test_a_checker_knows_the_types_of_the_installed_package(check: Check, installed: Path, tmp_path: Path) -> None:
    (tmp_path / "consumer.py").write_text(CONSUMER)
    found = check(installed, tmp_path / "consumer.py")
    assert sorted(found) == WRONG, found


@pytest.mark.parametrize("check", [mypy, pyright])
def test_without_its_marker_nothing_would_be_known(check: Check, installed: Path, tmp_path: Path) -> None:
    (tmp_path / "consumer.py").write_text(CONSUMER)
    (marker,) = installed.parent.parent.glob("lib/*/site-packages/agentcho/py.typed")
    marker.unlink()
    try:
        assert sorted(check(installed, tmp_path / "consumer.py")) != WRONG
    finally:
        marker.touch()
