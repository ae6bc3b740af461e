"""Whole sessions of people at real terminals: timeouts, several games, several people, kills and signals."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcho.audit import audit_run
from agentcho.audit.wording import headline

from .consoles import CANARIES, SEATS, Opens, consoles, hidden, kept
from .emulator import Console

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Opens]:
    with consoles(tmp_path) as opens:
        yield opens


def test_time_that_runs_out_ends_the_game_as_an_outcome(run: Opens) -> None:
    console = run(CANARIES, "--as", "bob", "--model", "fake", "--limit", "agent_seconds=3")
    console.until("Say something")
    console.until("0:01 left")
    console.send("half a wo")
    console.until("game is over")
    hidden(console)
    assert "limit: bob reached 3" in console.text
    console.send("\r")
    assert console.end() == 0
    assert console.restored
    [over] = run.record.finished().values()
    assert (over.outcome, over.failed, over.ended) == (None, False, "limit: bob reached 3 seconds")
    assert run.record.status == "done"
    assert run.record.typed() == {}


QUESTION = re.compile(
    r"Game (\d) \(of 5\)(?: is over)?.*?(Say something|1 of 3|2 of 3|3 of 3|Choose|Press Enter to go on)", re.S
)
KEYS = {"Say something": "words of {}\r", "2 of 3": "because\r"}


def test_one_person_plays_in_five_games_while_the_others_go_on(run: Opens) -> None:
    console = run(CANARIES, "--as", "bob", "--model", "fake", "--games", "5")
    asked: list[tuple[str, str]] = []
    end = time.monotonic() + 120
    while len(asked) < 5 * 6:
        assert time.monotonic() < end, (asked, console.text)
        found = QUESTION.search(console.text)
        if found is None or found.groups() in asked or not console.drawn():
            assert console.read(), console.text
            continue
        game, question = found.groups()
        asked.append((game, question))
        console.send(KEYS.get(question, "\r").format(game))
    assert console.end() == 0
    assert console.restored
    hidden(console, "is over.")
    kept(console)
    assert re.search(r"[1-4] more games? waits? for you", " ".join(console.frames))
    assert len(set(asked)) == len(asked)
    record = run.record
    for game, entries in record.games().items():
        said = [e.message.text for e in entries if e.origin == "human" and e.message.text.startswith("words")]
        assert said == [f"words of {game}"]
    assert len(record.finished()) == 5
    assert headline(audit_run(record)).word == "CLEAN"


Turn = tuple[str, str]
TURNS = [(player, what) for player in ("alice", "bob") for what in ("think", "say", "all")]


def typed(turn: Turn) -> str:
    """What a player types in a turn: a secret, except in public turns."""
    player, what = turn
    return f"in-the-open-by-{player}" if what == "all" else f"for-{player}-{what}"


def answer(console: Console, turn: Turn) -> None:
    """Waits for the question of a turn, and answers it."""
    player, what = turn
    console.until(f"you are {player}")
    console.until({"think": "Think", "say": "carol can read it", "all": "Everyone can read it"}[what])
    console.send(f"{typed(turn)}\r")


def apart(console: Console) -> None:
    """Checks that each screen shows only the words of the player whose turn it is, and none while the keyboard is
    passed on, until a key is pressed. After that, a half-drawn screen may still show the previous question."""
    sits, since = "", None
    for number, frame in enumerate(console.frames):
        joined = re.sub(r"\s", "", frame)
        seat, passed = re.search(r"youare(alice|bob)", joined), "Passthekeyboard" in joined
        since = None if not passed else number if since is None else since
        pressed = since is None or any(since < sent <= number for sent in console.sent)
        sits = "" if not pressed else seat[1] if seat else sits
        assert {*re.findall(r"for-([a-z]+?)-", joined)} <= {sits}, frame
        assert sits or "in-the-open" not in joined, frame
    assert "for-carol" not in console.seen


def test_two_at_one_terminal_never_see_what_is_the_others(run: Opens) -> None:
    console = run(SEATS, "--as", "alice", "--as", "bob", "--model", "fake", "--set", "rounds=2")
    for turn in TURNS * 2:
        console.until("Pass the keyboard", f"you are {turn[0]}")
        if turn[1] == "think":
            console.until(f"Pass the keyboard to {turn[0]}")
            console.send("\r")
        answer(console, turn)
    console.until("game is over")
    console.send("\r")
    assert console.end() == 0
    assert console.restored
    apart(console)
    assert "[3J" not in console.raw
    outside = console.raw.partition("\x1b[?1049h")[0] + console.raw.rpartition("\x1b[?1049l")[2]
    assert "for-" not in outside
    assert "CLEAN" in outside
    report = audit_run(run.record)
    assert headline(report).word == "CLEAN"
    entries = run.record.games()[0]
    private = {entry.message.id for entry in entries if entry.message.audience.members == frozenset({"alice"})}
    assert private
    assert not any(private & {*entry.act.shown} for entry in entries if entry.message.author == "bob")


def test_a_killed_game_goes_on_with_what_was_typed_and_asks_nobody_twice(run: Opens) -> None:
    console = run(SEATS, "--as", "alice", "--as", "bob", "--model", "fake")
    for turn in TURNS[:4]:
        console.until("Pass the keyboard", f"you are {turn[0]}")
        if turn[1] == "think":
            console.send("\r")
        answer(console, turn)
    console.until("carol can read it")
    assert console.killed() == -signal.SIGKILL
    record = run.record
    assert record.status == "died"
    words = [*record.typed()[0].values()]
    assert words == [typed(turn) for turn in TURNS[:4]]
    again = run("--resume", "last")
    again.until("Pass the keyboard to bob")
    again.send("\r")
    for turn in TURNS[4:]:
        answer(again, turn)
    again.until("game is over")
    again.send("\r")
    assert again.end() == 0
    assert again.restored
    apart(again)
    assert "Pass the keyboard to alice" not in " ".join(again.frames)
    said = [entry.message.text for entry in run.record.games()[0] if entry.origin == "human"]
    assert said == [typed(turn) for turn in TURNS]
    assert headline(audit_run(run.record)).word == "CLEAN"


@pytest.mark.parametrize(
    ("how", "code"), [("key", 130), (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_leaves_the_terminal_as_it_was(run: Opens, how: signal.Signals | str, code: int) -> None:
    console = run(CANARIES, "--as", "bob", "--model", "fake")
    console.until("Say something")
    console.send("one two\r")
    console.until("1 of 3: who")
    assert not console.restored
    if isinstance(how, str):
        console.send("\x03")
    else:
        os.kill(console.pid, how)
    assert console.end() == code
    assert console.restored
    assert "CANARY" not in console.seen
    assert "Traceback" not in console.raw
    assert "agentcho run --resume" in console.raw
    assert run.record.status == "interrupted"
    assert [*run.record.typed()[0].values()] == ["one two"]
