"""A page that comes in pieces is encoded while the rest is on its way; then an agent says what is in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio

import agentcho

PAGE = "The mill stood by the river. In spring the water rose. The miller carried the flour upstairs. " * 12


async def page() -> AsyncIterator[str]:
    """Stands for whatever is slow: a download, a transcriber, a person."""
    for start in range(0, len(PAGE), 300):
        await anyio.lowlevel.checkpoint()
        yield PAGE[start : start + 300]


class Stream(agentcho.Scenario):
    """A reader says what a page is about as soon as it is there."""

    class Outcome(agentcho.Scenario.Outcome):
        summary: str

    async def play(self, game: agentcho.Game) -> Outcome:
        reader = game.cast(agentcho.Agent, "reader", role="reader", audience="everyone")
        async with game.streamed(to="reader") as message:
            async for piece in page():
                await message.write(piece)
        return self.Outcome(summary=(await reader.say(max_tokens=24)).text)
