"""Merges texts into one that keeps everything they say."""

from __future__ import annotations

from collections.abc import Sequence

import agentcho


class Merger(agentcho.Agent):
    """Merges texts into one. The merged text is for everyone.

    `side_by_side` True: the texts begin at the same position, right after the system prompt, and the merged text begins
    after the rightmost of their tokens. False, or without a system prompt: the texts stand one after another.
    """

    role = "merger"
    audience = "everyone"
    system = "You merge the texts into one text that keeps every sentence of both."
    side_by_side: bool = True

    async def merge(self, texts: Sequence[str]) -> agentcho.Message:
        """One text made of the messages `texts`; it reads only these and its system prompt."""
        system = self.brief
        if system is None or not self.side_by_side:
            return await self.say(header="Merged: ", view=agentcho.View.of([system, *texts]))
        placed = (agentcho.Read(text, agentcho.After(system)) for text in texts)
        view = agentcho.View((agentcho.Read(system), *placed), "rightmost")
        return await self.say(header="Merged: ", view=view)
