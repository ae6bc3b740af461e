"""Merges texts into one that keeps all of what they say."""

from __future__ import annotations

from collections.abc import Sequence

import agentcho


class Merger(agentcho.Agent):
    """Joins texts into one. What it says is for everyone.

    `side_by_side` True: the texts begin at one position, right after its system prompt, and its own begins after
    the rightmost of their tokens. False, or without a system prompt: they stand one after another.
    """

    role = "merger"
    audience = "everyone"
    system = "You merge the texts into one text that keeps every sentence of both."
    side_by_side: bool = True

    async def merge(self, texts: Sequence[str]) -> agentcho.Message:
        """One text of the messages `texts`; it reads nothing but these and its system prompt."""
        system = self.brief
        if system is None or not self.side_by_side:
            return await self.say(header="Merged: ", view=agentcho.View.of([system, *texts]))
        placed = (agentcho.Read(text, agentcho.After(system)) for text in texts)
        view = agentcho.View((agentcho.Read(system), *placed), "rightmost")
        return await self.say(header="Merged: ", view=view)
