"""Sweeps on a real Ray cluster on loopback: games equal those of one process, though the driver is killed."""

from __future__ import annotations

import subprocess
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

import agentcho
from agentcho.lab.sweep.folder import Folder
from agentcho.records.record import runs
from tests.cluster.processes import marked
from tests.cluster.test_ray import COMMAND, LATE, command, mark, wait_until

__all__ = ["mark"]
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
NAME, GAMES = "prisoners-dilemma", 60
GRID: dict[str, list[Any]] = {"strategy": ["none", "always-defect"], "seed": [1, 2]}
TYPED = ("--grid", "strategy=none,always-defect", "--grid", "seed=1,2", "--model", "fake", "--set", "rounds=1")
SWEEP = ("sweep", NAME, *TYPED, "-n", str(GAMES), "--out", "there", "--on", "ray", "--workers", "2")


def told(folder: Path, *words: str) -> tuple[int, str]:
    """The exit code and the error output of a command."""
    ended = subprocess.run([*COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=LATE)
    return ended.returncode, ended.stderr


def over(folder: Path) -> int:
    """The number of finished games in the records of a sweep."""
    return sum(file.read_text().count("\n") for file in folder.glob("cells/*/*/outcomes.jsonl"))


def said(folder: Path) -> dict[str, list[Any]]:
    """The messages and outcomes of all games of a sweep by cell, from all records; a game ends in only one."""
    request = Folder(folder).earlier()
    assert request is not None
    found = dict[str, list[Any]]()
    for key, cell in request.cells.items():
        ended, words = list[Any](), list[Any]()
        for run in runs(folder / "cells" / key):
            games = run.games()
            for number, game in run.finished().items():
                ended.append((number, game._replace(seconds=0)))
                messages = (entry.message for entry in games[number])
                words.append((number, sorted((each.id, each.author or "", each.text) for each in messages)))
        found[cell.name] = [sorted(ended, key=itemgetter(0)), sorted(words, key=itemgetter(0))]
        assert [number for number, _ in found[cell.name][0]] == [*range(GAMES)], "each game is over once"
    return found


def test_a_sweep_on_a_cluster_whose_driver_was_killed_goes_on_and_is_that_of_one_process(
    mark: str, tmp_path: Path
) -> None:
    with command(tmp_path, *SWEEP) as process:
        wait_until(lambda: over(tmp_path / "there") > GAMES or process.poll() is not None, "a cell is over", LATE)
        assert process.poll() is None, process.stderr and process.stderr.read()
        process.kill()
    wait_until(lambda: not [*marked(mark)], "all have ended", LATE)
    kept = over(tmp_path / "there")
    assert GAMES < kept < 4 * GAMES
    code, error = told(tmp_path, *SWEEP)
    assert (code, "Traceback" in error) == (0, False), error
    assert over(tmp_path / "there") == 4 * GAMES
    alone = agentcho.sweep(NAME, GRID, games=GAMES, given={"rounds": 1}, model="fake", out=tmp_path / "here")
    assert said(tmp_path / "there") == said(tmp_path / "here")
    whole = agentcho.sweep(NAME, GRID, games=GAMES, given={"rounds": 1}, model="fake", out=tmp_path / "there", on="ray")
    assert [whole.rows, whole.effects] == [alone.rows, alone.effects]


def test_a_sweep_from_python_on_a_cluster_is_that_of_one_process(mark: str, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"games": GAMES, "given": {"rounds": 1}, "model": "fake"}
    there = agentcho.sweep(NAME, GRID, out=tmp_path / "there", on="ray", workers=2, **asked)
    alone = agentcho.sweep(NAME, GRID, out=tmp_path / "here", **asked)
    assert there.whole
    assert said(tmp_path / "there") == said(tmp_path / "here")
    assert [there.rows, there.effects] == [alone.rows, alone.effects]
