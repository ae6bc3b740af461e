"""`agentcho run --as`: who may play which agent, checked before the run; and line-by-line input through a pipe."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentcho.records.record import find

from .conftest import PLAY, Command, one_line

Typed = Callable[[str], None]
pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.usefixtures("no_model")
def test_what_cannot_be_is_told_before_anything_is_played(agentcho: Command) -> None:
    assert "needs a terminal" in one_line(agentcho(*PLAY, "--as", "bob"))
    assert "--display plain" in one_line(agentcho(*PLAY, "--as", "bob"))
    assert "would see what bob saw" in one_line(agentcho(*PLAY, "--as", "bob", "--as", "alice", "--display", "plain"))
    assert "shows nothing" in one_line(agentcho(*PLAY, "--as", "bob", "--display", "none"))
    assert "'Bob' cannot name an agent" in one_line(agentcho(*PLAY, "--as", "Bob", "--display", "plain"))


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Replaces standard input by a pipe with these lines."""
    with ExitStack() as files:

        def type_(words: str) -> None:
            source, sink = os.pipe()
            os.write(sink, words.encode())
            os.close(sink)
            monkeypatch.setattr(sys, "stdin", files.enter_context(os.fdopen(source)))

        yield type_
        monkeypatch.undo()


@pytest.mark.usefixtures("no_model")
def test_a_name_that_nobody_has_is_told_with_the_cast(agentcho: Command, typed: Typed) -> None:
    typed("")
    told = one_line(agentcho(*PLAY, "--as", "bbo", "--display", "plain"))
    assert told.endswith(
        "no agent is named bbo, which a person is to play; the cast is: alice, bob. Names must match exactly\n"
    )


def test_a_game_through_a_pipe_and_the_rest_of_it_later(agentcho: Command, typed: Typed) -> None:
    typed("my plan\nhello\n")
    ran = agentcho(*PLAY, "--as", "bob", "--display", "plain")
    assert ran.code == 1
    assert "error: PersonLeft: the person who plays bob has left" in ran.err
    assert "people play in games that are not over" in ran.out
    assert "alice (private" not in ran.out
    typed("second\n2\n")
    ran = agentcho("run", "--resume", "last", "--display", "plain")
    assert ran.code == 0, ran.err
    assert "hello" in ran.out
    assert "CLEAN" in ran.out
    outcome = find("last", Path("runs")).finished()[0].outcome
    assert outcome is not None
    assert outcome["bob"] == "DEFECT"


def test_a_run_of_people_goes_on_with_the_same_people(agentcho: Command, typed: Typed) -> None:
    typed("my plan\n")
    agentcho(*PLAY, "--as", "bob", "--display", "plain")
    typed("my plan\n")
    assert "what differs: people" in one_line(
        agentcho("run", "--resume", "last", "--as", "alice", "--display", "plain")
    )


TABLE = """
import agentcho
import anyio

class Table(agentcho.Scenario):
    name = "table"

    async def play(self, game):
        ann, bob, carol = (game.cast(agentcho.Agent, name) for name in ("ann", "bob", "carol"))
        called = anyio.Event()

        @agentcho.tool(audience="nobody", timeout=None)
        async def look() -> str:
            called.set()
            await anyio.sleep_forever()
            return ""

        async def interrupt():
            await called.wait()
            raise KeyboardInterrupt

        await bob.say(to="everyone")
        WHAT
        return self.Outcome()
"""
INTERRUPTED = 'await game.together(ann.say(to=(), tools=[look], tool_choice="required"), interrupt())'


def table(here: Path, what: str) -> str:
    """The file of a scenario in which Bob speaks first, and then something happens that he must not see."""
    (here / "table.py").write_text(TABLE.replace("WHAT", what))
    return "table.py"


def test_who_continues_an_interrupted_game_is_shown_no_ids_of_calls(
    agentcho: Command, here: Path, typed: Typed
) -> None:
    typed("hello\n")
    ran = agentcho("run", table(here, INTERRUPTED), "--model", "fake", "--as", "bob", "--display", "plain")
    assert ran.code == 130, ran.err
    assert "tool calls that were started and have no result: 1\n" in ran.out
    assert "add --redo all to repeat all of them, or --skip all to repeat none\n" in ran.out
    assert ran.out.splitlines()[-1] == f"to continue: agentcho run --resume {find('last', Path('runs')).info.id}"
    again = agentcho("run", "--resume", "last", "--display", "plain")
    assert (again.code, "error: ResumeMismatch" in again.err) == (1, True)
    assert "tool calls that were started and have no result: 1\n" in again.out
    assert not [text for text in (*ran, *again) if "ann." in str(text)]


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ('await ann.say(view=agentcho.View.of([await carol.think("Well?")]))', "LeakageError"),
        ('raise ValueError(await carol.think("Well?"))', "ValueError"),
    ],
)
def test_who_continues_a_failed_game_is_shown_the_class_of_the_error(
    agentcho: Command, here: Path, typed: Typed, what: str, error: str
) -> None:
    typed("hello\n")
    ran = agentcho("run", table(here, what), "--model", "fake", "--as", "bob", "--display", "plain")
    assert ran.code == 1
    assert f"error: {error}\n" in ran.err
    assert not re.findall(r"(?:carol\.|table\.py:)\d+", ran.out + ran.err)
