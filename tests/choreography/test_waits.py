"""A wait that nothing may end is reported: who waits, at which line, for what."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import anyio
import pytest

from agentcho.agent import Agent
from agentcho.choreography.choreographer import Choreographer
from agentcho.choreography.wait_sites import WaitSite, wait_of
from agentcho.games.play.game import Game
from agentcho.scenario import Scenario
from agentcho.testing import FakeEngine

from .conftest import BACKENDS


class Shy(Agent):
    """Speaks once the other agent has."""

    audience = "everyone"
    mine: Any
    others: Any

    async def run(self) -> None:
        """Never gets to speak."""
        await self.others.wait()
        await self.say()
        self.mine.set()


class Deadlock(Scenario):
    """Alice waits for Bob, and Bob for Alice."""

    name = "deadlock"

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = anyio.Event(), anyio.Event()

    async def play(self, game: Game) -> Scenario.Outcome:
        alice = game.cast(Shy, "alice", mine=self.one, others=self.other)
        bob = game.cast(Shy, "bob", mine=self.other, others=self.one)
        await game.play_agents(alice, bob)
        return self.Outcome()


def line(function: Any, below: int) -> str:
    return f"tests/choreography/test_waits.py:{function.__code__.co_firstlineno + below}"


class Heard(logging.Handler):
    """Collects log messages, and ends the deadlock."""

    def __init__(self, scenario: Deadlock) -> None:
        super().__init__()
        self.told: list[str] = []
        self._scenario = scenario

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())
        self._scenario.one.set()


@pytest.mark.parametrize("backend", BACKENDS)
def test_agents_that_wait_for_each_other_are_told_of_with_their_lines(backend: str) -> None:
    async def work() -> None:
        scenario = Deadlock()
        handler, log = Heard(scenario), logging.getLogger("agentcho.choreography.step_clock")
        log.addHandler(handler)
        try:
            async with Choreographer(FakeEngine(), quiet_after=0.01) as choreographer:
                await Game(choreographer).play(scenario)
                assert choreographer.waiting() == ()
        finally:
            log.removeHandler(handler)
        [told] = handler.told
        assert "nothing has moved for 0.01 s" in told
        for name in ("alice", "bob"):
            assert f"{name} waits at {line(Shy.run, 2)} for Event.wait" in told
        assert f"deadlock waits at {line(Deadlock.play, 3)} for Game.play_agents" in told

    anyio.run(work, backend=backend)


class Mute(Deadlock):
    """Its name raises an error."""

    @property
    def name(self) -> str:
        raise ZeroDivisionError

    @name.setter
    def name(self, name: str) -> None:
        pass


@pytest.mark.parametrize("backend", BACKENDS)
def test_who_does_not_say_its_name_is_told_of_without(backend: str) -> None:
    async def work() -> None:
        scenario = Mute()
        handler, log = Heard(scenario), logging.getLogger("agentcho.choreography.step_clock")
        log.addHandler(handler)
        try:
            async with Choreographer(FakeEngine(), quiet_after=0.01) as choreographer:
                await Game(choreographer).play(scenario)
        finally:
            log.removeHandler(handler)
        [told] = handler.told
        assert f"a task waits at {line(Deadlock.play, 3)} for Game.play_agents" in told

    anyio.run(work, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_who_waits_can_be_asked_at_any_time(backend: str) -> None:
    async def work() -> None:
        scenario = Deadlock()
        async with Choreographer(FakeEngine()) as choreographer, anyio.create_task_group() as group:
            group.start_soon(Game(choreographer).play, scenario)
            while len(choreographer.waiting()) < 3:
                await anyio.lowlevel.checkpoint()
            assert {wait.who[-1] for wait in choreographer.waiting()} == {"deadlock", "alice", "bob"}
            scenario.one.set()

    anyio.run(work, backend=backend)


async def lingers() -> None:
    """Called by a player's code."""
    await asyncio.sleep(0)


async def stays() -> None:
    """Calls that."""
    await lingers()


def test_it_is_the_innermost_line_of_the_players_code_that_is_told() -> None:
    work = stays()
    work.send(None)
    assert wait_of(work) == WaitSite((), line(lingers, 2), "sleep")
    work.close()
