"""`agentcho run --as`: who may play which agent, checked before the run; and line-by-line input through a pipe."""

from __future__ import annotations

import os
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
