"""The example sweep file works as it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from agentcho.cli import main

FILE = Path(__file__).parents[2] / "examples" / "sweep.yaml"


@pytest.mark.slow
@pytest.mark.usefixtures("one_command_line")
def test_the_example_is_planned_and_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sweep(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["agentcho", "sweep", str(FILE), *words])
        with pytest.raises(SystemExit) as end:
            main()
        assert (end.value.code or 0) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    assert "6 cells, 300 games: 0 are over, 300 to play; models, one after the other: understudy" in sweep("--dry-run")
    assert "2 cells of 2 games" in sweep("--models", "fake", "-n", "2", "--filter", "strategy=none")
    assert len(re.findall("\n", (tmp_path / "swept" / "games.csv").read_text())) == 1 + 2 * 2
