"""Ten thousand turns in one society, over a real socket, in constant memory."""

from __future__ import annotations

import gc
import json
import sys
from collections import deque
from pathlib import Path
from typing import NamedTuple

import pytest

from agentcho import RunConfig
from agentcho.serve.sharing.served import ServedModel, Serving
from agentcho.serve.sharing.society import RetentionLimits
from agentcho.testing import FakeEngine
from tests.serve.door import CHAT, Door, opened, play

NAMES = ("ann", "bob", "cem")
WINDOW = 6
"""Number of earlier messages that a client resends, as from its framework's buffer."""
GAME = 500
"""Number of messages in one game of the society."""
STATM = Path("/proc/self/statm")
LONG = 1800.0


class Memory(NamedTuple):
    """Resident bytes of this process, and the number of allocated Python blocks."""

    resident: int
    objects: int


class Talk:
    """Three agents who take turns. Each request has a private brief and the last messages of all; one answer in five is
    streamed. Server and clients are in this process, with a socket between them."""

    def __init__(self, door: Door, engine: FakeEngine) -> None:
        self._door, self._engine, self._turns = door, engine, 0
        self._said = deque[tuple[str, str]](maxlen=WINDOW)

    async def go_on(self, turns: int) -> Memory:
        """Goes on to this turn, then to the beginning of the next game; returns the memory in use. Discards the batches
        that the fake engine keeps for tests."""
        while self._turns < turns or await self._messages() > 20:
            self._turns += 1
            name = NAMES[self._turns % 3]
            self._said.append((name, await self._turn(name)))
        self._engine.batches.clear()
        gc.collect()
        return Memory(int(STATM.read_text().split()[1]) * 4096, sys.getallocatedblocks())

    async def _turn(self, name: str) -> str:
        quoted = [_quoted(who == name, text) for who, text in self._said]
        brief = {"role": "system", "content": f"you are {name}, and nobody else may know"}
        told = [brief, {"role": "user", "content": "talk about the bridge"}, *quoted]
        stream = self._turns % 5 == 0
        answer = await self._door.ask(f"/s/talk/{name}{CHAT}", messages=told, max_tokens=4, stream=stream)
        assert answer.status_code == 200, answer.text
        if stream:
            assert answer.text.endswith("data: [DONE]\n\n")
            return _streamed(answer.text)
        return str(answer.json()["choices"][0]["message"]["content"])

    async def _messages(self) -> int:
        [info] = (await self._door.client.get("/s/talk")).json()["models"]
        assert info["messages"] <= GAME
        assert info["encoded_tokens"] <= 2000
        return int(info["messages"])


def _streamed(text: str) -> str:
    """The text of a streamed answer."""
    data = (line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {"))
    return "".join(json.loads(each)["choices"][0]["delta"].get("content") or "" for each in data)


def _quoted(own: bool, text: str) -> dict[str, str]:
    return {"role": "assistant" if own else "user", "content": text}


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.skipif(not STATM.is_file(), reason="this system does not tell what a process has in memory")
def test_ten_thousand_turns_of_a_society_take_no_more_memory_than_two_thousand(tmp_path: Path) -> None:
    engine = FakeEngine()

    async def body() -> None:
        serving = Serving(record=tmp_path, keeping=RetentionLimits(tokens=2000, messages=GAME))
        async with (
            ServedModel("m", engine, RunConfig(model="fake"), serving).serving() as model,
            opened(model, late=LONG) as door,
        ):
            talk = Talk(door, engine)
            early, pages = await talk.go_on(2000), engine.pages
            late = await talk.go_on(10_000)
            now = engine.pages
        told = (f"{each.resident / 1e6:.1f} MB, {each.objects} objects" for each in (early, late))
        print(" at turn 2,000; ".join(told), "at turn 10,000")
        assert late.objects - early.objects < 4000, "one object of every second turn is kept"
        assert late.resident - early.resident < 8_000_000
        assert now < pages + 20

    play(body)
