"""Ten thousand turns in one society, in flat memory."""

from __future__ import annotations

import gc
import sys
from collections import deque
from pathlib import Path
from typing import NamedTuple

import pytest

from agentcho.serve.sharing.society import Keeping
from agentcho.testing import FakeEngine
from tests.serve.stage import Asked, agent, assistant, play, served, system, user

NAMES = ("ann", "bob", "cem")
WINDOW = 6
"""Messages of the talk that a client still sends: those of its framework's buffer."""
GAME = 500
"""Messages of one game of the society."""
STATM = Path("/proc/self/statm")


class Memory(NamedTuple):
    """Bytes that the system says this process has in memory, and the objects of Python in it."""

    resident: int
    objects: int


class Talk:
    """Three agents who take turns, each sent its own private brief and the last messages of all."""

    def __init__(self, at: Asked) -> None:
        self._at, self._turns = at, 0
        self._said = deque[tuple[str, str]](maxlen=WINDOW)

    async def go_on(self, turns: int) -> Memory:
        """To this turn, and on to the beginning of the next game: what there is then. What the fake keeps of its steps
        for tests is thrown away."""
        while self._turns < turns or self._messages() > 20:
            self._turns += 1
            name = NAMES[self._turns % 3]
            quoted = (assistant(text) if who == name else user(text, who) for who, text in self._said)
            told = (system(f"you are {name}, and nobody else may know"), user("talk about the bridge"))
            answers = await self._at.ask(*told, *quoted, who=agent(name), max_tokens=4)
            self._said.append((name, answers.answers[0].text))
        self._at.engine.batches.clear()
        gc.collect()
        return Memory(int(STATM.read_text().split()[1]) * 4096, sys.getallocatedblocks())

    def _messages(self) -> int:
        info = self._at.model.society_info(agent(None))
        assert info is not None
        assert info["messages"] <= GAME
        assert info["encoded_tokens"] <= 2000
        return int(info["messages"])


@pytest.mark.slow
@pytest.mark.skipif(not STATM.is_file(), reason="this system does not tell what a process has in memory")
def test_ten_thousand_turns_of_a_society_take_no_more_memory_than_two_thousand(tmp_path: Path) -> None:
    engine = FakeEngine()

    async def body() -> None:
        async with served(tmp_path, engine, keeping=Keeping(tokens=2000, messages=GAME)) as at:
            talk = Talk(at)
            early, pages = await talk.go_on(2000), engine.pages
            late = await talk.go_on(10_000)
            told = (f"{each.resident / 1e6:.1f} MB, {each.objects} objects" for each in (early, late))
            print(" at turn 2,000; ".join(told), "at turn 10,000")
            assert late.objects - early.objects < 4000, "one object of every second turn is kept"
            assert late.resident - early.resident < 8_000_000
            assert engine.pages < pages + 20

    play(body)
