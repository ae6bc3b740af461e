"""Does one step of an office's work: reads messages and passes a message on."""

from __future__ import annotations

from collections.abc import Sequence

import agentcho


class Clerk(agentcho.Agent):
    """Passes a message on to named agents. The scenario provides its system prompt, which is private to it."""

    role = "clerk"

    async def pass_on(self, to: Sequence[str], header: str, reads: Sequence[str]) -> agentcho.Message:
        """Its message to `to`, from its system prompt and the messages `reads`, given by id."""
        return await self.say(to=to, header=header, view=agentcho.View.of([self.brief, *reads]))
