"""Many kills of run, compare, sweep, trace and tune, each followed by a resumption: nothing is lost or duplicated.

A process kills itself with SIGKILL right before a line is written, in the middle of one, or right before a file is
replaced. Every line that was complete is still there afterwards, and the final result equals that of an undisturbed
run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agentcho.lab.compare.compare import read_comparison
from agentcho.lab.sweep.files import read_result
from agentcho.records.record import SavedRun, find
from agentcho.runner.understudy import weights_path

pytestmark = pytest.mark.slow
UNDERSTUDY = pytest.mark.skipif(not (weights_path() / "model.safetensors").is_file(), reason="there are no weights")
DIE = """
import os, signal, sys
kind, at = sys.argv.pop(1), int(sys.argv.pop(1))
write, replace, seen = os.write, os.replace, 0

def due():
    global seen
    seen += 1
    return seen == at

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def dying_write(file, data):
    if kind in ("torn", "before") and data.startswith(b"{") and not data.startswith(b'{"pid"') and due():
        if kind == "torn":
            write(file, data[: len(data) // 2])
        die()
    return write(file, data)

def dying_replace(*paths, **options):
    here = os.path.abspath(paths[-1]).startswith(os.getcwd())
    if kind == "replace" and here and due():
        die()
    return replace(*paths, **options)

os.write, os.replace = dying_write, dying_replace
from agentcho.cli import main
main()
"""
Words = tuple[str, ...]


class Kill(NamedTuple):
    """When a process dies: at the `at`-th event of a kind."""

    kind: str
    at: int


class Chain(NamedTuple):
    """A command that is killed and resumed once for each kill, and then runs to its end."""

    first: Words
    again: Words
    kills: tuple[Kill, ...]


def ran(here: Path, words: Words, kill: Kill | None = None) -> int:
    """Run a command in a process of its own; returns its exit code."""
    die = ("never", "0") if kill is None else (kill.kind, str(kill.at))
    command = [sys.executable, "-c", DIE, *die, *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False, env=environment)
    assert "Traceback" not in ended.stderr
    return ended.returncode


def lines(here: Path) -> dict[Path, list[bytes]]:
    """Every complete line of every record and trace file, without training logs."""
    found = {}
    for file in sorted(here.rglob("*.jsonl")):
        if file.name != "log.jsonl":
            data = file.read_bytes()
            found[file] = data[: data.rfind(b"\n") + 1].splitlines()
    return found


def is_torn(here: Path) -> bool:
    return any(not data.endswith(b"\n") for file in here.rglob("*.jsonl") if (data := file.read_bytes()))


def died(here: Path, chain: Chain) -> int:
    """Kill and resume, kill by kill; returns the number of torn lines."""
    torn, words = 0, chain.first
    for kill in chain.kills:
        before = lines(here)
        assert ran(here, words, kill) == -signal.SIGKILL, f"{kill} did not come about"
        torn += kill.kind == "torn" and is_torn(here)
        _nothing_lost(before, lines(here))
        words = chain.again
    before = lines(here)
    assert ran(here, words) == 0
    _nothing_lost(before, lines(here))
    return torn


def _nothing_lost(before: dict[Path, list[bytes]], after: dict[Path, list[bytes]]) -> None:
    for file, there in before.items():
        if file.parent.parent.name.endswith(".jsonl.games") and file not in after:
            continue  # these games are in the complete trace file
        left = list(after[file])
        for line in there:
            left.remove(line)  # ValueError: the line is lost


def said(run: SavedRun) -> dict[int, list[Any]]:
    """The messages of each game."""
    return {
        game: sorted((e.message.id, e.message.header, e.message.text, e.message.tokens) for e in entries)
        for game, entries in run.games().items()
    }


def kills(at: Sequence[int], *kinds: str) -> tuple[Kill, ...]:
    return tuple(Kill(kinds[number % len(kinds)], each) for number, each in enumerate(at))


def check_run(here: Path, model: str, games: int, deaths: tuple[Kill, ...]) -> int:
    options = f"--games {games} --at-once 2 --max-tokens 12 --display none"
    run = ("run", "multi-qa", "--model", model, *options.split())
    torn = died(here, Chain(run, ("run", "--resume", "last", "--display", "none"), deaths))
    assert ran(here, (*run, "--out", "whole")) == 0
    assert not is_torn(here)
    found, whole = find("last", here / "runs"), find("last", here / "whole")
    assert found.status == "done"
    assert said(found) == said(whole)
    over = [json.loads(line)["game"] for line in (found.path / "outcomes.jsonl").read_text().splitlines()]
    assert sorted(over) == list(range(games))
    assert len(found.info.resumed) == len(deaths)
    for entries in found.attempts().values():
        ids = [(entry.attempt, entry.message.id) for entry in entries]
        assert len(ids) == len(set(ids))
    return torn


def check_compare(here: Path, model: str, games: int, deaths: tuple[Kill, ...]) -> int:
    options = f"-n {games} --at-once 2 --max-tokens 12 --fidelity-games 0 --timed-games 0"
    compare = ("compare", "multi-qa", "--model", model, *options.split())
    words = (*compare, "--out", "c")
    torn = died(here, Chain(words, words, deaths))
    assert ran(here, (*compare, "--out", "whole")) == 0
    found, whole = read_comparison(here / "c/compare.json"), read_comparison(here / "whole/compare.json")
    assert (found.metrics, found.without) == (whole.metrics, whole.without)
    for column in (here / "c").iterdir():
        if column.is_dir():
            over = [number for file in column.glob("*/outcomes.jsonl") for number in _over(file)]
            assert sorted(over) == list(range(games))
    return torn


def check_sweep(here: Path, games: int, deaths: tuple[Kill, ...]) -> int:
    options = f"--model fake --grid layout=parallel,serial -n {games} --at-once 2 --max-tokens 12"
    sweep = ("sweep", "multi-qa", *options.split())
    words = (*sweep, "--out", "s")
    torn = died(here, Chain(words, words, deaths))
    assert ran(here, (*sweep, "--out", "whole")) == 0
    found, whole = read_result(here / "s/sweep.json"), read_result(here / "whole/sweep.json")
    assert (found.metrics, found.rows, found.whole) == (whole.metrics, whole.rows, True)
    for cell in (here / "s" / "cells").iterdir():
        over = [number for file in cell.glob("*/outcomes.jsonl") for number in _over(file)]
        assert sorted(over) == list(range(games)), "no game was played twice"
    return torn


def _over(file: Path) -> Iterator[int]:
    data = file.read_bytes()
    yield from (json.loads(line)["game"] for line in data[: data.rfind(b"\n") + 1].splitlines())


def check_trace(here: Path, model: str, games: int, deaths: tuple[Kill, ...]) -> int:
    trace = ("trace", "multi-qa", "--model", model, "-n", str(games), "--at-once", "2", "--max-tokens", "12")
    words = (*trace, "--out", "t.jsonl")
    torn = died(here, Chain(words, words, deaths))
    assert ran(here, (*trace, "--out", "whole.jsonl")) == 0
    assert (here / "t.jsonl").read_bytes() == (here / "whole.jsonl").read_bytes()
    assert not list(here.glob("*writer*")) + list(here.glob(".*writer*"))
    return torn


def test_thirty_kills_of_runs_and_traces_on_the_fake(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "trace").mkdir()
    at = (1, 2, 7, 80, 81, 82, 76, 77, 78, 79, 80, 81, 82, 75, 1, 77, 78, 79)
    deaths = kills(at, "torn", "before", "torn")
    torn = check_run(tmp_path / "run", "fake", 160, deaths)
    deaths = (*kills((1, 2, 3, 2, 4, 3, 2, 1, 3, 2, 2), "before", "torn"), Kill("replace", 1))
    torn += check_trace(tmp_path / "trace", "fake", 30, deaths)
    assert torn >= 10


def test_ten_kills_of_a_comparison_on_the_fake(tmp_path: Path) -> None:
    assert check_compare(tmp_path, "fake", 12, kills((1, 9, 32, 33, 34, 35, 36, 37, 2, 38), "torn", "before")) >= 5


def test_six_kills_of_a_sweep_on_the_fake(tmp_path: Path) -> None:
    assert check_sweep(tmp_path, 12, (*kills((1, 9, 32, 33, 40), "torn", "before"), Kill("replace", 2))) >= 2


@UNDERSTUDY
def test_a_kill_of_a_training(tmp_path: Path) -> None:
    check_tune(tmp_path, kills((3,), "torn"))


@UNDERSTUDY
@pytest.mark.nightly
def test_three_kills_of_a_training(tmp_path: Path) -> None:
    check_tune(tmp_path, kills((3, 6, 2), "torn", "before", "replace"))


@UNDERSTUDY
@pytest.mark.nightly
def test_seven_kills_on_the_understudy(tmp_path: Path) -> None:
    for name in ("run", "compare", "trace"):
        (tmp_path / name).mkdir()
    torn = check_run(tmp_path / "run", "understudy", 4, kills((5, 14, 16), "torn", "before"))
    torn += check_compare(tmp_path / "compare", "understudy", 2, kills((6, 9), "before", "torn"))
    torn += check_trace(tmp_path / "trace", "understudy", 6, kills((2, 3), "torn", "before"))
    assert torn >= 2


def check_tune(here: Path, deaths: tuple[Kill, ...]) -> None:
    """Check that an adapter and its log are the same bit for bit."""
    assert ran(here, ("trace", "multi-qa", "-n", "6", "--out", "t.jsonl", "--max-tokens", "12")) == 0
    tune = ("tune", "multi-qa", "--traces", "t.jsonl", "--epochs", "3", "--batch", "2", "--rank", "4")
    words = (*tune, "--out", "tuned")
    died(here, Chain(words, words, deaths))
    assert ran(here, (*tune, "--out", "whole")) == 0
    for name in ("adapter_model.safetensors", "adapter_config.json", "log.jsonl"):
        assert (here / "tuned" / name).read_bytes() == (here / "whole" / name).read_bytes()
    assert {path.name for path in (here / "tuned").iterdir()} == {path.name for path in (here / "whole").iterdir()}
