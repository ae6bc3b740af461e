"""A page that arrives in pieces is encoded while the rest is still loading; then an agent summarises it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio

import agentcho

PAGE = "The mill stood by the river. In spring the water rose. The miller carried the flour upstairs. " * 12


async def page() -> AsyncIterator[str]:
    """Stands in for any slow source: a download, a transcriber, a person."""
    for start in range(0, len(PAGE), 300):
        await anyio.lowlevel.checkpoint()
        yield PAGE[start : start + 300]


class Stream(agentcho.Scenario):
    """A reader summarises a page as soon as it has arrived."""

    class Outcome(agentcho.Scenario.Outcome):
        summary: str

    async def play(self, game: agentcho.Game) -> Outcome:
        reader = game.cast(agentcho.Agent, "reader", role="reader", audience="everyone")
        async with game.streamed(to="reader") as message:
            async for piece in page():
                await message.write(piece)
        return self.Outcome(summary=(await reader.say(max_tokens=24)).text)
