"""Mistakes on the command line: reported in one line, before a model is loaded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import PLAY, Command, one_line

NAMING = {
    **dict.fromkeys(("run", "compare", "audit", "prove", "ls", "cp"), ()),
    "sweep": ("--grid", "rounds=1,2", "--out", "cells"),
    "trace": ("--out", "t.jsonl"),
    "tune": ("--traces", "t.jsonl", "--out", "adapter"),
}
"""Commands that take a scenario, and the other options they need."""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "nothing"), "no scenario or agent named 'nothing'; known: .*debate"),
        ((*PLAY, "--set", "colour=red"), "there is no option 'colour'.* its options: strategy .*first"),
        ((*PLAY, "--set", "strategy=sometimes"), "strategy: .*'always-defect'"),
        ((*PLAY, "--set", "rounds=9"), "rounds"),
        ((*PLAY, "--shadow", "always", "--deterministic"), "shadow=always contradicts deterministic.*use shadow=auto"),
        (("show", "nothing"), "no run 'nothing' in runs"),
    ],
)
@pytest.mark.usefixtures("no_model")
def test_what_is_wrong_is_said_in_a_line_before_a_model_is_loaded(
    agentcho: Command, words: tuple[str, ...], told: str
) -> None:
    assert re.search(told, one_line(agentcho(*words)), re.IGNORECASE)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("show", "last", "--ids", "--trace", "t.jsonl"), "--ids: an export always has them"),
        (("ls", "debate", "--runs"), "leave debate out"),
        (("ls", "--runs-dir", "parts"), "no effect without --runs"),
        (("view", "last", "--port", "8000"), "--port: has no effect without --serve"),
        (("doctor", "understudy", "--engine", "vllm", "--threads", "2"), "threads cannot be used with engine vllm"),
    ],
)
def test_an_option_without_effect_is_refused(agentcho: Command, words: tuple[str, ...], told: str) -> None:
    refused = agentcho(*words)
    assert (refused.code, told in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("show", "last"),
            "no run 'last' in runs; that folder does not exist; `agentcho run SCENARIO` records a run, and",
        ),
        (("run", "bidding"), "no scenario or agent named 'bidding', but there is a file bidding.py; give bidding.py"),
        (("ls", "bidding"), "no scenario or agent named 'bidding', but there is a file bidding.py; give bidding.py"),
        (("run", "night-watch"), "but there is a file night_watch.py; give night_watch.py"),
    ],
)
@pytest.mark.usefixtures("no_model")
def test_what_is_missing_is_said_with_what_may_be_meant(
    agentcho: Command, here: Path, words: tuple[str, ...], told: str
) -> None:
    for name in ("bidding.py", "night_watch.py"):
        (here / name).touch()
    assert told in one_line(agentcho(*words))


@pytest.mark.parametrize(
    ("games", "told"),
    [
        ("1", "the set has 1 task, and the game draws 2; give more tasks"),
        ("2", "the set has 1 task, and 2 games draw 2 each, 4 in all; give more tasks"),
    ],
)
@pytest.mark.usefixtures("no_model")
def test_too_few_tasks_are_counted_in_the_singular_too(agentcho: Command, here: Path, games: str, told: str) -> None:
    (here / "one.jsonl").write_text('{"question": "One and one?", "answer": "2"}\n')
    words = ("run", "multi-qa", "--model", "fake", "--tasks", "one.jsonl", "--set", "n=2", "--games", games)
    assert told in one_line(agentcho(*words))


def test_an_empty_folder_of_runs_is_said_to_be_empty_and_a_missing_one_missing(agentcho: Command) -> None:
    assert agentcho("ls", "--runs").out == "no runs in runs; `agentcho run SCENARIO` records one\n"
    ran = agentcho("ls", "--runs", "--runs-dir", "nosuch")
    assert ran.code == 2
    assert "Invalid value for --runs-dir: there is no folder nosuch" in ran.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--trace", "none/t.jsonl"), "'--trace': none/t.jsonl cannot be written: there is no folder none"),
        (("--svg", "none/t.svg"), "'--svg': none/t.svg cannot be written: there is no folder none"),
        (("--inspect", "none/t.eval"), "'--inspect': none/t.eval cannot be written: there is no folder none"),
        (("--inspect", "t.txt"), "'--inspect': t.txt must end with .eval, by which Inspect recognizes a log"),
    ],
)
def test_files_that_show_cannot_write_are_refused(agentcho: Command, words: tuple[str, ...], told: str) -> None:
    assert agentcho(*PLAY, "--display", "none").code == 0
    ran = agentcho("show", "last", *words)
    assert ran.code == 2
    assert told in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--set", "colour"), "'colour' is not of the form KEY=VALUE"),
        (("--set", "first=bob", "--set", "first=bob"), "given twice"),
        (("--temperature", "-1"), "--temperature"),
        (("--games", "0"), "--games"),
        (("--limit", "game_tokens=0"), "--limit game_tokens"),
        (("--limit", "game_tokens=x"), "--limit game_tokens"),
        (("--limit", "tokens=9"), "there is no such limit; did you mean 'game_tokens'? The limits are agent_tokens, "),
        (("--mode", "fast"), "Invalid value for '--mode': 'fast' is not one of 'baseline', 'choreographed'."),
        (("--leakage", "no"), "Invalid value for '--leakage': 'no' is not one of 'audit', 'enforce', 'deny'."),
    ],
)
@pytest.mark.usefixtures("no_model")
def test_wrong_usage_is_exit_code_2(agentcho: Command, words: tuple[str, ...], told: str) -> None:
    ran = agentcho(*PLAY, *words)
    assert ran.code == 2
    assert told in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.usefixtures("no_model")
def test_a_broken_agent_is_found_before_a_model_is_loaded(agentcho: Command, here: Path) -> None:
    (here / "agents").mkdir()
    (here / "agents/prisoner.py").write_text("import agentcho\nclass Prisoner(agentcho.Agent):\n    role = 1 / 0\n")
    assert "agents/prisoner.py:3: does not import: ZeroDivisionError" in one_line(agentcho(*PLAY))


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        *(((command, "debat", *more), "debate") for command, more in NAMING.items()),
        (("bench", "games", "--scenario", "debat"), "debate"),
        (("run", "debate", "--model", "fake", "--tasks", "arithmetc"), "arithmetic"),
        (("run", "debate", "--model", "fake", "--set", "rouns=2"), "rounds"),
        (("sweep", "debate", "--grid", "rouns=1,2", "--out", "cells"), "rounds"),
        (("sweep", "debate", "--grid", "temperatur=1,2", "--out", "cells"), "temperature"),
        (("paper", "--quick", "--tasks", "multi-q=arithmetic"), "multi-qa"),
        (("plan", "parallel-debat"), "parallel-debate"),
        (("bench", "workflows", "--workflow", "parallel-debat"), "parallel-debate"),
    ],
    ids=lambda words: "-".join(words[:2]) if isinstance(words, tuple) else words,
)
@pytest.mark.usefixtures("no_model")
def test_a_misspelt_name_is_answered_with_the_nearest(agentcho: Command, words: tuple[str, ...], meant: str) -> None:
    ran = agentcho(*words)
    assert ran.code == 2
    assert f"did you mean '{meant}'?" in ran.err
    assert "Traceback" not in ran.err
