"""Progress of commands: a line every half minute without a terminal, a bar on one, nothing from a library call."""

from __future__ import annotations

import io
import re
import sys
from itertools import count
from pathlib import Path

import pytest

import agentcho as package
from agentcho.display import screen
from agentcho.display.progress import EVERY, Bars, Progress, ProgressLines, WorkPace, progress
from agentcho.events import GameOver, Joined
from agentcho.protocol.progress import ProgressCallback
from agentcho.testing import FakeEngine
from tests.engine.families import llama_family

from .conftest import PLAY, Command


class File(io.StringIO):
    """A file that may be a terminal."""

    terminal = False

    def isatty(self) -> bool:
        return self.terminal


class Terminal(File):
    terminal = True


class Hand:
    """A clock that moves only when it is set."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets up a terminal with colors and cursor control."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes half a minute pass between successive readings of the clock."""
    ticks = count(0.0, EVERY)
    monkeypatch.setattr("agentcho.display.progress.monotonic", lambda: next(ticks))


def lines(told: Progress, hand: Hand, file: File, *heard: tuple[float, int]) -> list[str]:
    """The lines written for these pairs of elapsed seconds and games done."""
    began = hand.now
    for after, done in heard:
        hand.now = began + after
        told.tell("games (baseline)", done, 60)
    return file.getvalue().splitlines()


# -- lines -----------------------------------------------------------------------------------------------


def test_lines_are_half_a_minute_apart_and_none_comes_before() -> None:
    hand, file = Hand(), File()
    told = progress("compare", file, clock=hand)
    assert lines(told, hand, file, (0, 0), (29.9, 5)) == []
    hand.now = 1000.0
    said = lines(told, hand, file, (30, 6), (31, 7), (59.9, 8), (60, 24), (61, 25))
    assert said == [
        "compare: 6 of 60 games, 12.0 games/min, 4 min left (baseline)",
        "compare: 24 of 60 games, 24.0 games/min, 90 s left (baseline)",
    ]


def test_a_rate_counts_what_was_done_since_it_began() -> None:
    hand, file = Hand(), File()
    told = progress("trace", file, clock=hand)
    (line,) = lines(told, hand, file, (0, 40), (100, 45))
    assert line == "trace: 45 of 60 games, 3.0 games/min, 5 min left (baseline)"


def test_while_nothing_is_done_there_is_no_rate_and_it_falls_while_nothing_more_is() -> None:
    hand, file = Hand(), File()
    told = progress("run", file, clock=hand)
    said = lines(told, hand, file, (0, 0), (30, 0), (60, 1), (120, 1))
    assert said == [
        "run: 0 of 60 games (baseline)",
        "run: 1 of 60 games, 1.0 games/min, 59 min left (baseline)",
        "run: 1 of 60 games, 30.0 games/h, 118 min left (baseline)",
    ]


@pytest.mark.parametrize(("what", "done", "of"), [("weights read", 0, 60), ("games", 0, 7), ("games (enforce)", 0, 60)])
def test_other_work_begins_with_no_rate(what: str, done: int, of: int) -> None:
    hand, file = Hand(), File()
    told = progress("run", file, clock=hand)
    lines(told, hand, file, (0, 0), (30, 30))
    hand.now += 30
    told.tell(what, done, of)
    assert file.getvalue().splitlines()[-1] == f"run: {done} of {of} {what}"


def test_what_follows_in_the_same_work_keeps_its_rate() -> None:
    hand, file = Hand(), File()
    told = progress("compare", file, clock=hand)
    told.tell("games (baseline)", 0, 8)
    hand.now += 60
    told.tell("games (choreographed)", 2, 8)
    assert file.getvalue() == "compare: 2 of 8 games, 2.0 games/min, 3 min left (choreographed)\n"


@pytest.mark.parametrize(
    ("done", "seconds", "told"),
    [
        (50, 10, ", 5.0 steps/s, 10 s left"),
        (1, 60, ", 1.0 steps/min, 99 min left"),
        (2, 3600, ", 2.0 steps/h, 49.0 h left"),
        (1, 7200, ", 0.5 steps/h, 198.0 h left"),
        (50, 119, ", 25.2 steps/min, 119 s left"),
        (100, 10, ", 10.0 steps/s, 0 s left"),
        (0, 10, ""),
        (5, 0, ""),
    ],
)
def test_rates_and_times_are_in_units_that_read_well(done: int, seconds: float, told: str) -> None:
    assert WorkPace("steps", 100, 0, 7.0).told(done, 7.0 + seconds) == told


def test_a_file_that_takes_nothing_is_no_error() -> None:
    class Full(File):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    hand = Hand()
    told = progress("run", Full(), clock=hand)
    hand.now += 31
    told.tell("games", 1, 2)
    progress("run", None, clock=hand).tell("games", 1, 2)


def test_names_that_others_chose_cannot_move_a_terminal() -> None:
    for file in (File(), Terminal()):
        hand = Hand()
        with progress("bench", file, clock=hand) as told:
            hand.now += 31
            told.tell("runs (evil\x1b[2J\nbench: 9)", 1, 2)
        assert "\x1b[2J" not in file.getvalue()
        assert "evil␛[2J␊bench: 9" in file.getvalue()


# -- bars ------------------------------------------------------------------------------------------------


def test_a_terminal_shows_a_bar_at_once_and_is_left_as_it_was() -> None:
    hand, file = Hand(), Terminal()
    with progress("compare", file, clock=hand) as told:
        assert file.getvalue() == ""
        told.tell("games", 0, 60)
        assert "0 of 60 games" in file.getvalue()
        hand.now += 60
        told.tell("games", 15, 60)
        shown = file.getvalue()
    for word in ("compare", "━", "15 of 60 games, 15.0 games/min, 3 min left"):
        assert word in shown
    assert file.getvalue().endswith("\x1b[1A\x1b[2K"), "the line of the bar is erased"


def test_a_bar_is_not_drawn_more_often_than_it_can_be_seen() -> None:
    hand, file = Hand(), Terminal()
    with progress("run", file, clock=hand) as told:
        told.tell("games", 0, 9000)
        drawn = len(file.getvalue())
        for done in range(1, 100):
            told.tell("games", done, 9000)
        assert len(file.getvalue()) == drawn
        hand.now += 0.2
        told.tell("games", 100, 9000)
        assert "100 of 9000" in file.getvalue()


def test_after_it_was_cleared_a_bar_begins_again(capsys: pytest.CaptureFixture[str]) -> None:
    hand, file = Hand(), Terminal()
    told = progress("tune", file, clock=hand)
    told.tell("weights read", 3, 9)
    told.clear()
    before = len(file.getvalue())
    print("a table")
    told.tell("steps", 1, 9)
    told.clear()
    assert "1 of 9 steps" in file.getvalue()[before:]
    assert capsys.readouterr().out == "a table\n"


def test_a_bar_is_for_terminals_that_can_be_drawn_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(progress("run", Terminal()), Bars)
    assert isinstance(progress("run", Terminal(), bars=False), ProgressLines)
    assert isinstance(progress("run", File()), ProgressLines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(progress("run", Terminal()), ProgressLines)


def test_many_games_on_a_terminal_are_a_bar_and_those_of_an_earlier_part_are_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hand, file = Hand(), Terminal()
    monkeypatch.setattr("agentcho.display.live.monotonic", hand)
    with screen(None, "the title", 4, file) as shown:
        shown.games = {0: GameOver(0, {}, {}, None, 1.0)}
        assert "━" not in file.getvalue(), "the terminal is not its own before the first event"
        shown.hear(Joined(1, "ada", "talker"))
        hand.now += 60
        shown.hear(GameOver(1, {}, {}, None, 60.0))
    assert "2 of 4 games, 1.0 games/min, 2 min left (0 messages)" in file.getvalue()


# -- commands --------------------------------------------------------------------------------------------

PLAYING = {
    "run": (*PLAY, "--games", "3"),
    "compare": ("compare", "multi-qa", "--model", "fake", "-n", "2"),
    "trace": ("trace", "multi-qa", "--model", "fake", "-n", "3", "--out", "t.jsonl"),
    "audit": ("audit", "prisoners-dilemma", "--model", "fake", "--games", "3", "--fail-on", "never"),
}


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that reports loading progress."""

    def load(config: object, tell: ProgressCallback) -> FakeEngine:
        tell("weights read", 3, 8)
        return FakeEngine()

    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", load)


@pytest.mark.slow
@pytest.mark.usefixtures("late", "loading")
@pytest.mark.parametrize("command", PLAYING)
def test_a_command_that_plays_says_how_far_it_is(agentcho: Command, command: str) -> None:
    ran = agentcho(*PLAYING[command])
    assert ran.code == 0
    said = ran.err.splitlines()
    assert all(line.startswith(f"{command}: ") for line in said)
    assert said[0] == f"{command}: 3 of 8 weights read"
    of = 6 if command == "compare" else 3
    assert any(line.startswith(f"{command}: {of} of {of} games") and ", 0 s left" in line for line in said)
    assert "games/" not in ran.out


@pytest.mark.slow
@pytest.mark.usefixtures("loading")
@pytest.mark.parametrize("command", PLAYING)
def test_a_short_command_says_nothing_of_it(agentcho: Command, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcho.display.progress.monotonic", Hand())
    ran = agentcho(*PLAYING[command])
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.slow
@pytest.mark.usefixtures("late", "loading")
@pytest.mark.parametrize("command", PLAYING)
def test_on_a_terminal_it_is_a_bar_and_the_output_is_the_same(
    agentcho: Command, command: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = agentcho(*PLAYING[command], *(("--out", "other") if command in ("run", "audit") else ()))
    (here / "t.jsonl").unlink(missing_ok=True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    ran = agentcho(*PLAYING[command])
    assert ran.code == 0
    assert "3 of 8 weights read" in ran.err
    of = 6 if command == "compare" else 3
    assert f"{of} of {of} games" in ran.err
    assert ran.err.endswith("\x1b[1A\x1b[2K")
    assert "\x1b" not in ran.out
    assert len(ran.out.splitlines()) == len(plain.out.splitlines())


@pytest.mark.slow
@pytest.mark.usefixtures("late")
def test_what_was_played_before_is_no_part_of_the_rate(agentcho: Command) -> None:
    compare = ("compare", "multi-qa", "--model", "fake", "--modes", "baseline", "--out", "c")
    agentcho(*compare, "-n", "4")
    (first, *_) = agentcho(*compare, "-n", "5").err.splitlines()
    assert first == "compare: 4 of 5 games"
    trace = ("trace", "multi-qa", "--model", "fake", "--out", "t.jsonl")
    agentcho(*trace, "-n", "4")
    said = agentcho(*trace, "-n", "3", "--first", "2").err.splitlines()
    assert said[0] == "trace: 2 of 3 games"
    assert said[-1].startswith("trace: 3 of 3 games, ")


@pytest.mark.usefixtures("late", "loading")
def test_standard_output_is_nothing_but_what_was_asked_for(agentcho: Command) -> None:
    ran = agentcho(*PLAYING["audit"], "--json", "-")
    assert ran.out.startswith("{")
    assert "audit: 3 of 3 games" in ran.err


@pytest.mark.usefixtures("late")
def test_a_library_call_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    class Talker(package.Agent):
        async def run(self) -> None:
            await self.say()

    package.run(Talker("ann"), engine=FakeEngine(), display="none", games=3)
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.usefixtures("late", "here")
def test_the_benchmarks_of_games_and_leakage_say_how_far_they_are(
    agentcho: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentcho.lab.bench.games.load_engine", lambda config, tell=None: FakeEngine())
    assert "bench games: 5 of 5 games, " in agentcho("bench", "games", "--games", "2").err
    monkeypatch.setattr(package.Engine, "load", classmethod(lambda cls, *args, **options: FakeEngine()))
    ran = agentcho("bench", "leakage", "--model", "fake", "--repeats", "1")
    assert ran.code == 0
    assert re.search(r"bench leakage: 2 of 6 repeats, .* \(fake, none, none: first tokens of open-talk-1\)", ran.err)


@pytest.fixture
def tables(agentcho: Command) -> dict[str, str]:
    """What `run` and `compare` print without a terminal."""
    assert not sys.stdout.isatty()
    return {
        "run": agentcho(*PLAY).out,
        "games": agentcho(*PLAY, "--games", "3").out,
        "compare": agentcho(*PLAYING["compare"]).out,
    }


@pytest.mark.slow
def test_tables_are_printed_off_a_terminal_too(tables: dict[str, str]) -> None:
    assert "outcomes of 3 games" in tables["games"]
    for out in (tables["run"], tables["games"]):
        assert {"encoded", "reused"} <= set(out.split())
        assert any(line.split()[:1] == ["alice"] for line in out.splitlines())
    rows = [line.split() for line in tables["compare"].splitlines()]
    for column in ("baseline", "choreographed:audit", "choreographed:enforce"):
        assert any((column in row and "right" in row) or row[:1] == [column] for row in rows), column
    assert not any("\x1b" in out for out in tables.values())


@pytest.mark.usefixtures("late")
def test_the_doctor_says_how_far_a_model_is_loaded(agentcho: Command, here: Path) -> None:
    llama_family().save(here / "small")
    said = [line for line in agentcho("doctor", "small").err.splitlines() if line.startswith("doctor: ")]
    assert re.match(r"doctor: 0 of \d+ weights read$", said[0])
    assert re.match(r"doctor: (\d+) of \1 weights read, 2.0 weights/min, 0 s left$", said[-3])
    assert said[-2:] == ["doctor: 0 of 1 proofs", "doctor: 1 of 1 proofs, 2.0 proofs/min, 0 s left"]
