"""The command: its table, its file, and what it refuses before anything is loaded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agentcho import Engine
from agentcho.cli import main
from agentcho.lab.leaks.measured import PartialLeaks, digest
from agentcho.lab.leaks.result import read_leaks
from tests.engines import Engines

pytestmark = pytest.mark.usefixtures("one_command_line")


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["agentcho", "bench", "leaks", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


@pytest.mark.slow
def test_what_was_found_is_printed_and_written(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, file = engines(), tmp_path / "leaks.json"
    monkeypatch.setattr(Engine, "load", lambda *given, **named: engine)
    ways = [word for name in ("author", "audience", "text") for word in ("--way", name)]
    few = ["-n", "24", "--kind", "codes", "--attack", "linear", "--repeats", "1"]
    assert run(monkeypatch, *ways, *few, "--json", str(file)) == 0
    printed = capsys.readouterr().out
    found = read_leaks(file)
    assert [(row.way, row.attack, row.tested) for row in found.rows] == [
        (way, "linear", 6) for way in ("author", "audience", "text")
    ]
    assert [cost.way for cost in found.costs] == ["author", "audience", "text"]
    assert min(second for cost in found.costs for second in cost.seconds) > 0
    assert found.digest == digest()
    assert found.command.startswith("agentcho bench leaks --way author")
    assert str(tmp_path) not in found.command
    assert all(f"{claim.way}: {claim.verdict}." in printed for claim in found.claims)
    assert len(found.claims) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["leaks.json"]


def test_attacks_on_other_weights_are_not_gone_on_with(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(engine: Engine, asked: object, kept: PartialLeaks, tell: object) -> None:
        kept.save()
        raise KeyboardInterrupt

    engine, file = engines(), str(tmp_path / "leaks.json")
    monkeypatch.setattr(Engine, "load", lambda *given, **named: engine)
    monkeypatch.setattr("agentcho.lab.leaks.measured.measure", stopped)
    assert run(monkeypatch, "-n", "24", "--json", file) == 130
    assert run(monkeypatch, "-n", "24", "--json", file, "--resume") == 130
    monkeypatch.setattr(Engine, "fingerprint", engine.fingerprint | {"weights": "retrained"})
    assert run(monkeypatch, "-n", "24", "--json", file, "--resume") == 2
    assert ", and is retrained" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--way", "writer"), "unknown way 'writer'"),
        (("--attack", "guess"), "unknown attack 'guess'"),
        (("--kind", "pins"), "unknown kind of secret 'pins'"),
        (("-n", "5000"), "but 5000 were requested"),
    ],
)
def test_what_cannot_be_is_refused_before_a_model_is_loaded(
    words: tuple[str, ...], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(*given: Any, **named: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(Engine, "load", load)
    assert run(monkeypatch, *words) == 2
    assert why in capsys.readouterr().err
