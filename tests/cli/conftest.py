"""Fixtures that run the command line in this process, in a temporary folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from agentcho.cli import main


class Ran(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., Ran]
PLAY = ("run", "prisoners-dilemma", "--model", "fake")


def one_line(ran: Ran) -> str:
    """Checks that a command failed as it should and returns its error: one line, no traceback, exit code 2."""
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("error: ")
    return ran.err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder. No bytecode is cached, so a file that is rewritten within a second is compiled again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


@pytest.fixture
def agentcho(
    one_command_line: None, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs a command: `agentcho("run", "debate", …)`."""

    def command(*words: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["agentcho", *words])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        return Ran(code, *capsys.readouterr())

    return command


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails the test if an engine is loaded: the error must be found before that."""

    def refuse(config: object, tell: object) -> None:
        pytest.fail("an engine was loaded")

    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", refuse)
