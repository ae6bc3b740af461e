"""People at a real terminal: a command in a pseudo-terminal, driven by keys, and everything ever on its screen."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcho.audit import audit_run
from agentcho.audit.wording import headline

from .consoles import CANARIES, Opens, consoles, hidden, kept

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Opens]:
    with consoles(tmp_path) as opens:
        yield opens


def test_a_game_of_the_prisoners_dilemma_by_hand(run: Opens) -> None:
    console = run("prisoners-dilemma", "--as", "bob", "--model", "fake")
    console.until("Think")
    assert "You and Alice are two prisoners" in console.text
    console.send("I plan to cooperate\r")
    console.until("Say something")
    console.send("Hello Alice\r")
    console.until("bob → everyone")
    console.until("0 of 256")
    console.send("Trust me\r")
    console.until("Choose")
    console.send("\x1b[B\r")
    console.until("game is over")
    assert "bob=DEFECT" in console.text
    console.send("\r")
    assert console.end() == 0
    assert "CLEAN" in console.raw
    record = run.record
    said = {entry.message.text: entry.origin for entry in record.games()[0] if entry.message.author == "bob"}
    assert said["I plan to cooperate"] == said["Hello Alice"] == said["Trust me"] == said['"DEFECT"}'] == "human"
    assert headline(audit_run(record)).word == "CLEAN"
    assert "\x1b]" not in console.raw
    assert console.raw.count("\x1b[?1049h") == console.raw.count("\x1b[?1049l") == 1


def test_nothing_that_is_not_for_bob_is_ever_on_the_screen_before_the_end(run: Opens) -> None:
    console = run(CANARIES, "--as", "bob", "--model", "fake")
    console.until("Say something")
    assert "␛]0;title␇␛[2JBegin" in console.text
    console.send("one two three four five six seven eight nine\r")
    console.until("shorten it by 1")
    console.send("\x7f" * 5 + "\r")
    console.until("1 of 3: who")
    console.resize(60, 20)
    console.send("\r")
    console.until("2 of 3: why")
    console.send("because\r")
    console.until("3 of 3: sure")
    console.send("\x1b[Z")
    console.until("2 of 3: why")
    console.send(" of it\r")
    console.until("3 of 3: sure")
    console.send("\x1b[B\r")
    console.until("Choose")
    console.resize(100, 30)
    console.send("\r")
    console.until("game is over")
    hidden(console)
    assert "CANARY17" in console.text
    console.send("\r")
    assert console.end() == 0
    kept(console)
    said = {entry.message.text for entry in run.record.games()[0]}
    assert '{"who": "alice", "why": "because of it", "sure": true}' in said
    assert "CLEAN" in console.raw


@pytest.mark.parametrize(("keys", "code"), [("\x04", 1), ("\x03", 130)])
def test_who_leaves_is_told_how_to_go_on_and_nothing_else(run: Opens, keys: str, code: int) -> None:
    console = run(CANARIES, "--as", "bob", "--model", "fake")
    console.until("Say something")
    console.send("one two\r")
    console.until("1 of 3: who")
    console.send(keys)
    assert console.end() == code
    assert "CANARY" not in console.seen
    assert "agentcho run --resume" in console.raw
    assert run.record.status in ("failed", "interrupted")
    again = run("--resume", "last")
    again.until("1 of 3: who")
    assert "To all: one two" in again.text
    again.send("\rwhy not\r")
    again.until("3 of 3: sure")
    again.send("\r")
    again.until("Choose")
    again.send("\r")
    again.until("game is over")
    hidden(again)
    again.send("\r")
    assert again.end() == 0
    kept(again)


def test_a_terminal_that_is_closed_leaves_a_whole_record_that_can_be_resumed(run: Opens) -> None:
    console = run(CANARIES, "--as", "bob", "--model", "fake", "--games", "2")
    console.until("Say something")
    console.send("one two\r")
    console.until("Game 1 (of 2)")
    assert console.hang_up() == 129
    record = run.record
    assert record.status == "interrupted"
    assert record.typed()[0]
    assert "CANARY" not in console.seen


def test_where_the_signal_of_a_closed_terminal_is_ignored_its_person_has_left(run: Opens) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        console = run(CANARIES, "--as", "bob", "--model", "fake")
    finally:
        signal.signal(signal.SIGHUP, before)
    console.until("Say something")
    assert console.hang_up() == 1
    assert run.record.status == "failed"
    assert "PersonLeft" in str(run.record.finished()[0].ended)


def test_an_error_of_the_scenario_quotes_nothing(run: Opens) -> None:
    console = run(CANARIES, "--as", "bob", "--model", "fake", "--set", "breaks=true")
    console.until("Say something")
    console.send("one two\r")
    console.until("game is over")
    console.send("\r")
    assert console.end() == 1
    assert "ValueError" in console.raw
    assert "CANARY" not in console.seen
