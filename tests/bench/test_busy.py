"""`python -m tools.bench threads`: arms take turns beside a busy process and are compared turn by turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tools.bench.threads import ALL, DEFAULT, ONE, Times, measure, occupied, playing
from tools.pages.sentences import of_threads

ARMS: dict[str, Sequence[str]] = {DEFAULT: (), ONE: ("--threads", "1"), ALL: ("--threads", "2")}


def test_arms_take_turns_and_each_turn_begins_with_another_one() -> None:
    played: list[Sequence[str]] = []
    heard: list[tuple[str, int, int]] = []

    def play(options: Sequence[str]) -> float:
        played.append(options)
        return float(len(played))

    found = measure(ARMS, play, 2, 0, lambda *told: heard.append(told))
    default, one, all_ = ARMS.values()
    assert played == [default, one, all_, one, all_, default]
    assert found.seconds == {DEFAULT: [1, 6], ONE: [2, 4], ALL: [3, 5]}
    assert heard[-1] == ("plays", 6, 6)


def test_an_arm_is_compared_with_one_thread_of_the_same_turn() -> None:
    found = Times({DEFAULT: [2, 30, 4], ONE: [1, 10, 4], ALL: [10, 10, 40]}, 2)
    assert found.ratios(DEFAULT) == [2, 3, 1]
    assert found.lines() == [
        "2 cores busy with another process; median (least to most) of 3 turns",
        "default  4 (2 to 30) s; times one thread: 2 (1 to 3)",
        "one      4 (1 to 10) s",
        "all      10 (10 to 40) s; times one thread: 10 (1 to 10)",
    ]


def test_what_keeps_cores_busy_ends_with_what_is_measured() -> None:
    with occupied(2) as others:
        assert [other.poll() for other in others] == [None, None]
    assert None not in [other.returncode for other in others]


def test_a_play_that_fails_ends_it_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(words: Any, env: dict[str, str], **options: Any) -> Any:
        assert "OMP_NUM_THREADS" not in env
        return type("Ran", (), {"returncode": 2, "stderr": "error: no scenario"})

    monkeypatch.setattr("subprocess.run", failed)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with pytest.raises(SystemExit, match="error: no scenario"):
        playing("debate", "fake", 16)(())


def test_a_page_says_it_with_the_machine() -> None:
    found: dict[str, Any] = {
        "command": "python -m tools.bench threads debate --model small --repeats 3",
        "busy": 2,
        "seconds": {DEFAULT: [2, 30, 4], ONE: [1, 10, 4], ALL: [10, 10, 40]},
        "machine": "a machine",
        "system": "Linux",
        "python": "3.11",
        "torch": "2",
        "commit": "0123456789abcdef",
    }
    said = of_threads(found)
    assert "`agentcho run debate --model small` took 4.0 s on one thread" in said
    assert "it took 2.00 (1.00 to 3.00) times as long, and on all threads 10.00 (1.00 to 10.00) times" in said
    assert "Measured on a machine, Linux, Python 3.11, torch 2, at `0123456789ab`" in said
