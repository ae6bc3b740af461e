"""The line that asked for a message: the scenario's, or an agent's own if it acts by itself."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, create_autospec

import anyio
import pytest

from agentcho import Agent, Game
from agentcho.protocol.call_site import call_site
from agentcho.testing import play

BACKENDS = ["asyncio", "trio"]
HERE = "tests/leaks/test_call_site.py"


def next_line() -> str:
    """ "file:line" of the line after the caller's."""
    return f"{HERE}:{sys._getframe(1).f_lineno + 1}"


class Talker(Agent):
    """Records the line on which it speaks."""

    role = "talker"

    async def turn(self, lines: list[str]) -> None:
        """Speak once."""
        lines.append(next_line())
        await self.say(to="everyone")

    async def run(self) -> None:
        """Speak once, by itself."""
        await self.turn(self.lines)

    lines: list[str]


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    """File names are relative to the working directory."""
    monkeypatch.chdir(Path(__file__).parents[2])


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_message_has_the_line_of_the_scenario_that_asked_for_it(backend: str) -> None:
    lines: list[str] = []

    async def script(game: Game) -> None:
        lines.append(next_line())
        alice = game.cast(Talker, "alice", system="You are Alice.")
        lines.append(next_line())
        await game.announce("Talk.")
        lines.append(next_line())
        await alice.tell("I am here.")
        lines.append(next_line())
        await alice.say(prompt="Well?")
        lines.append(next_line())
        await alice.turn([])  # the agent's own lines are deeper in the stack

    entries = {entry.message.id: entry.act.where for entry in play(script, backend=backend).entries}
    cast, announced, told, said, turn = lines
    assert entries == {
        "alice.0": cast,
        "scenario.0": announced,
        "alice.1": told,
        "alice.2": said,
        "alice.3": said,
        "alice.4": turn,
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_agent_that_acts_by_itself_has_lines_of_its_own(backend: str) -> None:
    lines: list[str] = []

    async def script(game: Game) -> None:
        alice, bob = (game.cast(Talker, name, lines=lines) for name in ("alice", "bob"))
        await game.together(alice.turn(lines), bob.turn(lines))
        await game.play_agents(alice, bob)

    entries = play(script, backend=backend).entries
    told = {entry.act.where for entry in entries}
    assert (len(entries), len(lines)) == (4, 4)
    own, run = sorted(told, key=str)
    assert own == lines[0]
    assert run is not None
    assert run.startswith(f"{HERE}:")
    assert run != own


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_that_a_round_runs_has_the_line_that_made_it(backend: str) -> None:
    lines: list[str] = []

    async def script(game: Game) -> None:
        alice, bob = game.cast(Agent, "alice"), game.cast(Agent, "bob")
        lines.append(next_line())
        moves = [alice.say(), bob.ask("Well?", ("yes", "no"))]
        moves.append(game.first(alice.say()))
        await game.together(*moves)
        lines.append(next_line())
        await bob.say()

    entries = play(script, backend=backend).entries
    told = [str(entry.act.where) for entry in entries if entry.message.sampled]
    made, after = lines
    file, line = made.split(":")
    assert sorted(told) == sorted([made, made, f"{file}:{int(line) + 1}", after])


class Streamer(Agent):
    """Speaks by itself in three ways, and notes their lines."""

    audience = "everyone"
    lines: list[str]

    async def run(self) -> None:
        """Speak."""
        self.lines.append(next_line())
        async with self.stream(max_tokens=4) as pieces:
            async for _ in pieces:
                pass
        async with anyio.create_task_group() as group:
            self.lines.append(next_line())
            group.start_soon(self.say)
        self.lines.append(next_line())
        await self.say()


async def passed_on(move: Coroutine[Any, Any, Any]) -> None:
    """A helper of a scenario."""
    await move


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", ["play_agents", "lockstep", "together"])
def test_the_line_that_starts_a_task_is_not_that_of_what_it_says(backend: str, way: str) -> None:
    lines: list[str] = []

    async def script(game: Game) -> None:
        ann = game.cast(Streamer, "ann", lines=lines)
        await getattr(game, way)(ann.run() if way == "together" else ann)
        lines.append(next_line())
        await game.together(passed_on(ann.say()))

    entries = play(script, backend=backend).entries
    assert [entry.act.where for entry in entries if entry.message.sampled] == lines


def test_verbs_are_coroutine_functions_for_mocks() -> None:
    assert isinstance(create_autospec(Agent).say, AsyncMock)
    assert asyncio.iscoroutinefunction(Game.together)


def test_moves_of_a_race_have_the_line_that_made_them() -> None:
    async def script(game: Game) -> None:
        alice, bob = game.cast(Agent, "alice"), game.cast(Agent, "bob")
        await game.first(alice.say(), bob.say())

    entries = play(script).entries
    assert all(str(entry.act.where).startswith(HERE) for entry in entries)


def test_where_nobody_asks_there_is_no_line() -> None:
    """In a separate thread, and in code that is only the library's."""
    with ThreadPoolExecutor(1) as alone:
        assert alone.submit(call_site).result() is None


def test_a_file_that_lies_elsewhere_is_told_by_its_folder_and_name(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    names: dict[str, object] = {"__name__": "played", "call_site": call_site}
    exec(compile("\n\ndef ask():\n    return call_site()\n", str(folder / "game.py"), "exec"), names)
    ask = names["ask"]
    assert callable(ask)
    with ThreadPoolExecutor(1) as alone:
        assert alone.submit(ask).result() == "mine/game.py:4"
