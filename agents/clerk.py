"""Does one step of an office's work: reads what it is given and passes something on."""

from __future__ import annotations

from collections.abc import Sequence

import agentcho


class Clerk(agentcho.Agent):
    """Passes something on to those who are named. Its system prompt is the scenario's, and its own secret."""

    role = "clerk"

    async def pass_on(self, to: Sequence[str], header: str, reads: Sequence[str]) -> agentcho.Message:
        """What it says to `to`, from its system prompt and the messages `reads`, by id."""
        return await self.say(to=to, header=header, view=agentcho.View.of([self.brief, *reads]))
