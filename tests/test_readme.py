"""The README is correct: every Python block runs, and every command line works."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from agentcho.cli import main
from agentcho.cli.app import app
from agentcho.games.runs.runtime import load_engine
from agentcho.protocol.progress import no_progress
from agentcho.runner.engine import Engine
from agentcho.runner.understudy import weights_path
from agentcho.testing import FakeEngine
from tests.commands import commands as commands_of

from .engines import Engines

pytestmark = pytest.mark.usefixtures("one_command_line")
ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(*languages: str) -> list[str]:
    return [text for language, text in re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL) if language in languages]


def commands() -> list[str]:
    lines = [line.strip().removeprefix("$ ") for block in blocks("sh", "console") for line in block.splitlines()]
    return [line for line in lines if line.startswith("agentcho ")]


@pytest.fixture(scope="module")
def engine(engines: Engines) -> Engine:
    """The bundled model, or a small llama if its weights are missing."""
    return engines.understudy() if (weights_path() / "model.safetensors").is_file() else engines()


def test_there_is_something_to_test() -> None:
    assert blocks("python")
    assert len(commands()) >= 6


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_python_blocks_run(
    number: int, engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", lambda config, tell=None: engine)
    monkeypatch.setattr(Engine, "load", classmethod(lambda cls, *args, **options: engine))
    exec(compile(blocks("python")[number], f"README block {number}", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize(
    ("leakage", "verdict"),
    [
        ("enforce", "CLEAN (encodings): no agent reads what it may "),
        ("audit", "LEAKS: alice can learn what bob keeps private, and bob can learn what alice keeps private"),
    ],
)
def test_the_first_example_leaks_only_where_the_page_says_so(
    leakage: str, verdict: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", lambda config, tell=None: FakeEngine())
    example = blocks("python")[0].replace("lockstep=True", f"lockstep=True, leakage={leakage!r}")
    exec(compile(example, "README", "exec"), {"__name__": "__main__"})
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["agentcho", "audit", "last"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == (leakage == "audit")
    assert capsys.readouterr().out.startswith(verdict)
    assert verdict in README


@pytest.mark.slow
@pytest.mark.parametrize("trained", [False, True])
def test_commands_run_in_order(
    trained: bool, engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Engine, "load", classmethod(lambda cls, *args, **options: engine))
    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", lambda config, tell=None: FakeEngine())
    exec(compile(blocks("python")[0], "README", "exec"), {"__name__": "__main__"})  # makes the run that is audited
    for line in commands():
        trains = line.startswith(("agentcho tune ", "agentcho bench ")) or "@" in line
        if trains and not trained:
            continue
        monkeypatch.setattr(
            "agentcho.games.runs.runtime.load_engine",
            lambda config, tell=None, real=trains: engine if real else FakeEngine(),
        )
        line, _, told = line.partition("  #")
        expected = re.search(r"exits (\d)", told)
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as end:
            main()
        assert (end.value.code or 0) == int(expected[1] if expected else 0), f"{line}: {capsys.readouterr().err}"
    assert (tmp_path / "compared/compare.json").is_file()
    assert (tmp_path / "scenarios/prisoners_dilemma.py").is_file()


def test_links_and_pictures_are_there() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).is_file(), target


def test_the_ten_line_agent_is_one() -> None:
    lines = [line for line in blocks("python")[0].splitlines() if line.strip()]
    assert len(lines) <= 11


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\S+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_command_explains_every_option() -> None:
    cli = commands_of(typer.main.get_command(app()))
    for name in ("run", "compare", "ls", "cp", "show", "doctor", "audit", "prove"):
        command = cli[name]
        assert command.help
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name} {parameter.name}"


def test_a_real_model_is_loaded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentcho.config import RunConfig

    asked: list[Any] = []
    monkeypatch.setattr(Engine, "load", classmethod(lambda cls, *args, **options: asked.append((args, options))))
    load_engine(RunConfig(model="some/model", dtype="bfloat16"))
    options: dict[str, Any] = {
        "merge": False,
        "context": None,
        "device_map": None,
        "weights": None,
        "kv_dtype": None,
        "disk_tokens": 0,
        "keep_cache": None,
        "plain_markers": "refuse",
        "template_differs": "refuse",
        "chat_template_kwargs": {},
        "share": 1,
        "tell": no_progress,
        "threads": "auto",
    }
    assert asked == [(("some/model", "auto", "bfloat16", None), options)]
