"""`agentcho new`: the scenario plays, is tested, listed, audited and compared at once; nothing is overwritten."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentcho.cli.new import new_scenario
from agentcho.errors import ScenarioError

from .conftest import Command

AGENTCHO = (sys.executable, "-c", "from agentcho.cli import main; main()")
FILES = {
    "scenarios/night_watch.py",
    "agents/night_watch_player.py",
    "tests/test_night_watch.py",
    "tasks/night_watch.jsonl",
}


@pytest.mark.slow
def test_a_new_scenario_passes_at_once(tmp_path: Path) -> None:
    def ran(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    told = ran(*AGENTCHO, "new", "scenario", "night-watch")
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*") if path.is_file()} == FILES
    assert told.splitlines()[-1] == "agentcho run night-watch --model fake · pytest tests/test_night_watch.py"
    ran(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_night_watch.py")
    assert "CLEAN" in ran(*AGENTCHO, "run", "night-watch", "--model", "fake", "--games", "3")
    assert "night-watch" in ran(*AGENTCHO, "ls")
    assert "rounds" in ran(*AGENTCHO, "ls", "night-watch")
    ran(sys.executable, "-m", "mypy", "--strict", "scenarios", "agents", "tests")


def test_the_commands_to_play_it_enter_its_folder_first(agentcho: Command, here: Path) -> None:
    told = agentcho("new", "scenario", "night-watch", "my games").out
    assert told.splitlines()[-1] == (
        "cd 'my games' · agentcho run night-watch --model fake · pytest tests/test_night_watch.py"
    )
    for folder in (".", str(here)):
        assert agentcho("new", "scenario", f"day{len(folder)}", folder).out.splitlines()[-1].startswith("agentcho run")


def test_in_a_clone_they_are_apart_from_the_shipped_ones(
    agentcho: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "scenarios").mkdir()
    monkeypatch.setattr("agentcho.games.runs.discovery.shipped", lambda section: here / section)
    told = agentcho("new", "scenario", "night-watch").out
    assert told.splitlines()[-1].startswith("cd mine · agentcho run night-watch")
    assert {str(path.relative_to(here / "mine")) for path in (here / "mine").rglob("*.*") if path.is_file()} == FILES


def test_its_files_are_clean_python_of_those_words(tmp_path: Path) -> None:
    paths = new_scenario("night-watch", tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in paths} == FILES
    for path in paths:
        text = path.read_text()
        assert "{{" not in text
        assert path.suffix != ".py" or compile(text, str(path), "exec")
    assert "class NightWatch(agentcho.Scenario)" in paths[0].read_text()
    ran = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--diff", str(tmp_path)], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize("name", ["", "Night", "night_watch", "night--watch", "1st", "a b", "../up", "class", "night-"])
def test_what_cannot_be_a_name_is_told(name: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot name a scenario"):
        new_scenario(name, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_nothing_is_overwritten_and_no_name_is_taken_twice(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="debate is already one of the scenarios"):
        new_scenario("debate", tmp_path)
    there = tmp_path / "tasks" / "night_watch.jsonl"
    there.parent.mkdir()
    there.write_text("mine")
    with pytest.raises(ScenarioError, match="already exists"):
        new_scenario("night-watch", tmp_path)
    assert there.read_text() == "mine"
    assert not (tmp_path / "scenarios").exists()
