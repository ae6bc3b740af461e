"""The log reports events, but no words of messages."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcho.cli.logs import log

from .conftest import PLAY, Command

CANARY = "x7canary7x"
SPIES = f'''
import agentcho
from pydantic import BaseModel


class Note(BaseModel):
    word: str = "{CANARY}"


class Spy(agentcho.Agent):
    """Keeps it."""

    role = "{CANARY}"
    system = "{CANARY}"


class Spies(agentcho.Scenario):
    """Everything that is said is secret."""

    name = "spies"

    class Options(agentcho.Scenario.Options):
        secret: str = "{CANARY}"

    class Outcome(agentcho.Scenario.Outcome):
        word: str

    async def play(self, game):
        ann, bob = game.cast(Spy, "ann"), game.cast(Spy, "bob")
        await game.announce("{CANARY}")
        await ann.tell("{CANARY}", to="everyone")
        plan = await ann.think("{CANARY}", header="{CANARY} ")
        await ann.release(plan, to="bob")
        await bob.choose(["{CANARY} a", "{CANARY} b"], "{CANARY}", opening="{CANARY}")
        await bob.answer(Note, "{CANARY}")
        async with bob.stream(to="everyone", prompt="{CANARY}", stop=["{CANARY}"]) as pieces:
            async for piece in pieces:
                pass
        if game.index == 1:
            raise ValueError("{CANARY}")
        if game.index == 2:
            await ann.say(temperature="{CANARY}")
        return self.Outcome(word="{CANARY}")
'''


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    yield
    log(None, None)
    logging.getLogger("agentcho").setLevel(logging.NOTSET)


def test_no_word_that_was_said_is_in_the_log(agentcho: Command, here: Path) -> None:
    (here / "spies.py").write_text(SPIES)
    words = ("run", "spies.py", "--model", "fake", "--games", "3", "--set", f"secret={CANARY}", "--display", "none")
    ran = agentcho("--log-level", "debug", "--log-file", "run.log", *words)
    assert ran.code == 1
    told = (here / "run.log").read_text()
    assert CANARY not in told
    for line in (
        *("loading fake", "spies begins: 3 games", "game 0: ann joined", "ann.3 began", "game 0 over at its end"),
        *("game 1: ValueError at ", "spies.py:", "game 2: RequestError at ", "over early (error)", "step 1: "),
        "spies is over: 3 games, 2 of them failed",
    ):
        assert line in told, line
    [transcript] = (here / "runs").glob("*/transcript.jsonl")
    assert transcript.read_text().count(CANARY) > 20, "all of it was said"


def test_the_log_goes_nowhere_unless_it_is_asked_for(agentcho: Command, here: Path) -> None:
    play = (*PLAY, "--display", "none")
    assert agentcho(*play).err == ""
    assert "game 0 over" in agentcho("--log-level", "info", *play).err
    assert agentcho("--log-level", "error", *play).err == ""
    assert agentcho("--log-file", "x.log", *play).err == ""
    assert "step 1" not in (here / "x.log").read_text()
    assert "game 0 over" in (here / "x.log").read_text()
    assert agentcho(*play).err == ""


def test_a_log_that_cannot_be_written_is_said_first(agentcho: Command, here: Path, no_model: None) -> None:
    ran = agentcho("--log-file", "nowhere/x.log", *PLAY)
    assert ran.code == 2
    assert "--log-file" in ran.err
    assert "there is no folder nowhere" in ran.err


def test_a_line_of_the_log_is_one_line_and_moves_nothing(here: Path) -> None:
    log("debug", Path("x.log"))
    logging.getLogger("agentcho.game").info("an id %s", "a\x1b[2J\nINFO agentcho.run all is well")
    assert (here / "x.log").read_text().count("\n") == 1
    assert "\x1b" not in (here / "x.log").read_text()


def test_a_log_that_is_full_ends_in_a_line(agentcho: Command, here: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no full device")
    ran = agentcho("--log-file", "/dev/full", *PLAY, "--display", "none")
    assert (ran.code, ran.err) == (
        0,
        "logging stopped because the log cannot be written: [Errno 28] No space left on device\n",
    )
