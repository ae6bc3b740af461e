"""Several people at one keyboard: at a terminal driven in this process, and line by line."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output
from pydantic import BaseModel

from agentcho import Agent, Game, Limits, RunConfig, Scenario
from agentcho.display.people.lines import LineByLine
from agentcho.display.people.session import Question, Session
from agentcho.display.people.terminal import Terminal
from agentcho.errors import PersonLeft
from agentcho.games.runs import library
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import RunResult
from agentcho.games.runs.runtime import play as play_run
from agentcho.testing import FakeEngine

from .canaries import Canaries
from .consoles import SHOWN_AFTER
from .emulator import Emulator

Keys = Callable[[Session], str]


class Secrets(Scenario):
    """Bob and Carol have secrets from each other, and play on one terminal."""

    name = "secrets"

    class Outcome(Scenario.Outcome):
        """The result."""

        end: str = "OUTCOME"

    async def play(self, game: Game) -> Scenario.Outcome:
        bob = game.cast(Agent, name="bob", system="ONLY-BOB", audience="everyone")
        carol = game.cast(Agent, name="carol", system="ONLY-CAROL", audience="everyone")
        await bob.think()
        await carol.think()
        await game.together(bob.say(), carol.say())
        return self.Outcome()


class Trip(BaseModel):
    """Where to go, and why."""

    places: list[str]
    why: str


class Trips(Scenario):
    """Bob plans a trip."""

    name = "trips"

    class Outcome(Scenario.Outcome):
        """The plan."""

        places: list[str]
        why: str

    async def play(self, game: Game) -> Scenario.Outcome:
        bob = game.cast(Agent, name="bob", audience="everyone")
        trip = await bob.answer(Trip, "Where to?")
        return self.Outcome(places=trip.places, why=trip.why)


class Journey(BaseModel):
    """Why to go, and where."""

    why: str
    places: list[str]


class Journeys(Trips):
    """The list comes last."""

    async def play(self, game: Game) -> Scenario.Outcome:
        bob = game.cast(Agent, name="bob", audience="everyone")
        trip = await bob.answer(Journey, "Where to?")
        return self.Outcome(places=trip.places, why=trip.why)


class Screenshots(io.StringIO):
    """Forwards output to an emulator; it has no file descriptor."""

    encoding = "utf-8"

    def __init__(self, emulator: Emulator) -> None:
        super().__init__()
        self.emulator = emulator

    def write(self, text: str) -> int:
        self.emulator.feed(text)
        return len(text)

    def isatty(self) -> bool:
        return True


@pytest.fixture
def emulator() -> Emulator:
    return Emulator(80, 24)


Plays = Callable[..., RunResult]


@pytest.fixture
def plays(emulator: Emulator) -> Iterator[Plays]:
    """Plays a scenario with people at a terminal. `keys` gives the answer to each state that waits for a key."""
    with create_pipe_input() as source:

        class Driven(Terminal):
            keys: Keys
            states: list[tuple[Any, ...]]

            def _application(self) -> Application[None]:
                app = super()._application()
                app.after_render += lambda _: self.press()
                return app

            def press(self) -> None:
                state = self.current, self.handing, None if self._form is None else self._form.place
                if self.current is not None and state not in self.states and (pressed := self.keys(self)):
                    self.states.append(state)
                    source.send_text(pressed)

        def play(scenario: Scenario, names: tuple[str, ...], keys: Keys, **options: Any) -> RunResult:
            config = RunConfig(model="fake", **options)
            target = Vt100_Output(Screenshots(emulator), lambda: Size(24, 80), term="xterm", enable_cpr=False)
            desk = Driven(names, config.games, lambda: None, source, target)
            desk.keys, desk.states = keys, []
            return play_run(RunRequest(scenario, config, engine=FakeEngine(), people=desk.people))

        yield play


def test_the_keyboard_is_passed_on_and_nothing_of_one_is_left_for_the_other(plays: Plays, emulator: Emulator) -> None:
    marks: list[tuple[str | None, str]] = []

    def keys(desk: Session) -> str:
        marks.append((None if desk.handing else desk.at, emulator.text))
        if desk.handing or not isinstance(desk.current, Question):
            return "\r"
        yank, undo = "\x19", "\x1f"
        return f"{undo}{yank}typed-by-{desk.at}\x01\x0b{yank}\r"

    played = plays(Secrets(), ("bob", "carol"), keys)
    assert not played.errors
    assert [who for who, _ in marks[:4]] == [None, "bob", None, "carol"]
    for who, shown in [*marks, *((None if "Pass the" in frame else "any", frame) for frame in emulator.frames)]:
        own = {"bob": "ONLY-CAROL", "carol": "ONLY-BOB"}.get(str(who), "ONLY" if who is None else "you are nobody")
        assert own not in shown, shown
        assert not ("ONLY-BOB" in shown and "ONLY-CAROL" in shown), shown
        typed = shown.partition("bob → everyone")[0]
        assert who in ("bob", "any") or "typed-by-bob" not in typed, shown
    assert any("Pass the keyboard to carol" in frame for frame in emulator.frames)
    assert "OUTCOME" in emulator.seen
    assert "typed-by-bob" in emulator.seen
    assert "typed-by-bobtyped" not in emulator.seen


def test_who_is_in_which_game_can_be_seen_and_the_first_games_come_first(plays: Plays, emulator: Emulator) -> None:
    order: list[int] = []

    def keys(desk: Session) -> str:
        assert desk.current is not None
        if not order and desk.others < 2:
            return ""
        order.append(desk.current.game)
        return "words\r" if isinstance(desk.current, Question) else "\r"

    played = plays(Secrets(), ("bob",), keys, games=3)
    assert len(played.games) == 3
    assert order.index(2) > order.index(1) > order.index(0) == 0
    text = "\n".join(emulator.frames)
    heads = [frame.splitlines()[0] for frame in emulator.frames if frame.strip()]
    assert " you are bob · Game 0 (of 3) · 2 more games wait for you" in heads
    assert "you are bob · Game 2 (of 3)" in text


def test_a_limit_ends_the_question_and_is_shown(plays: Plays, emulator: Emulator) -> None:
    keys: Keys = lambda desk: "unfinished" if isinstance(desk.current, Question) else "\r"  # noqa: E731
    played = plays(Secrets(), ("bob",), keys, limits=Limits(game_seconds=0.4))
    assert played.games[0].ended == "limit: the game reached 0.4 seconds"
    text = "\n".join(emulator.frames)
    assert "0:00 left" in text
    assert "ended early: limit: the game reached 0.4 seconds" in text


def test_ctrl_d_leaves(plays: Plays) -> None:
    played = plays(Secrets(), ("bob",), lambda desk: "\x04")
    assert isinstance(played.error, PersonLeft)


def lines(typed: bytes, scenario: Scenario, target: io.StringIO, **options: Any) -> RunResult:
    """Plays line by line with this input."""
    source, sink = os.pipe()
    os.write(sink, typed)
    os.close(sink)
    config = RunConfig(model="fake", **options)
    desk = LineByLine(("bob",), config.games, source, target)
    try:
        return play_run(RunRequest(scenario, config, engine=FakeEngine(), people=desk.people))
    finally:
        os.close(source)


def test_line_by_line_a_person_reads_and_answers(recwarn: Any, capsys: pytest.CaptureFixture[str]) -> None:
    target = io.StringIO()
    played = lines(b"one two three four five six seven eight nine\none two\ncarol\nwhy\n3\n2\n", Canaries(), target)
    assert played.games[0].outcome == {"winner": "CANARY17", "vote": "go"}
    said, _, end = target.getvalue().partition("The game is over")
    assert "CANARY" not in said
    assert "CANARY17" in end
    assert {int(number) for number in re.findall(r"CANARY(\d+)", end)} <= SHOWN_AFTER
    assert "! it has 9 tokens, and at most 8 are allowed; shorten it by 1" in said
    assert "? 1 of 3: who" in said
    assert "  2. carol" in said
    assert "\x1b" not in said
    assert "CANARY8" in capsys.readouterr().out


def test_line_by_line_a_list_ends_with_an_empty_line() -> None:
    target = io.StringIO()
    played = lines(b"Rome\nBern\n\nsun\n", Trips(), target)
    assert played.games[0].outcome == {"places": ["Rome", "Bern"], "why": "sun"}
    assert "An empty line ends the list." in target.getvalue()


@pytest.mark.parametrize("typed", [b"sun\nRome\nBern", b"sun\nRome\nBern\n"])
def test_line_by_line_a_list_ends_with_the_input_too(typed: bytes) -> None:
    played = lines(typed, Journeys(), io.StringIO())
    assert played.games[0].outcome == {"places": ["Rome", "Bern"], "why": "sun"}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("typed", [b"one two\n", b"one two"])
def test_at_the_end_of_the_lines_the_person_has_left(typed: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    target = io.StringIO()
    played = lines(typed, Canaries(), target)
    assert isinstance(played.error, PersonLeft)
    assert "CANARY" not in target.getvalue() + "".join(capsys.readouterr())


@pytest.mark.parametrize("typed", [b"hello\nworld\n", b"hello\nworld"])
def test_a_file_can_be_read_too(typed: bytes, tmp_path: Path) -> None:
    file = tmp_path / "typed"
    file.write_bytes(typed)
    with file.open("rb") as source:
        desk = LineByLine(("bob",), 1, source.fileno(), io.StringIO())
        played = play_run(RunRequest(Secrets(), RunConfig(model="fake"), engine=FakeEngine(), people=desk.people))
    assert played.games[0].outcome == {"end": "OUTCOME"}


def test_what_is_half_typed_at_a_terminal_is_not_said_when_the_person_leaves() -> None:
    keyboard, source = os.openpty()
    target = io.StringIO()
    try:
        os.write(keyboard, b"half\x04\x04\x04")
        desk = LineByLine(("bob",), 1, source, target)
        played = play_run(RunRequest(Secrets(), RunConfig(model="fake"), engine=FakeEngine(), people=desk.people))
    finally:
        os.close(source)
        os.close(keyboard)
    assert isinstance(played.error, PersonLeft)
    assert "half" not in target.getvalue()


def test_the_names_of_a_cast_are_known_where_the_source_says_them_all() -> None:
    assert library.cast_names(Canaries()) == frozenset({"alice", "bob", "carol"})

    class Unsaid(Canaries):
        """Inherits its play from another class."""

    class Given(Scenario):
        """Passes its game to a helper function."""

        async def play(self, game: Game) -> Any:
            game.cast(Agent, name="bob")
            return await others(game)

    class Made(Scenario):
        """Generates names."""

        async def play(self, game: Game) -> Any:
            return [game.cast(Agent, name=f"agent-{number}") for number in range(3)]

    for each in (Unsaid, Given, Made):
        assert library.cast_names(each()) is None


async def others(game: Game) -> Any:
    """Casts agents outside of the scenario's class."""


def test_people_who_share_a_terminal_are_different_people() -> None:
    terminal = Session(["alice", "bob"], 1)
    assert not terminal.is_same("alice", "bob")
    assert terminal.is_same("bob", "bob")
