"""Answers a question at once: alone, or from a solution that another agent has worked out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import agentcho

ALONE = "You answer a question of arithmetic at once, with nothing but the answer."
HELPED = "You give the final answer of a question of arithmetic. A solution will help you."


class Responder(agentcho.Agent):
    """Says only an answer, to everyone. `helped` True: its system prompt says that a solution will help."""

    role = "responder"
    audience = "everyone"
    helped: bool = False

    def __init__(self, name: str, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self.system = HELPED if self.helped else ALONE

    async def respond(self, reads: Sequence[str], **options: Any) -> str:
        """The bare answer, from its system prompt and the messages `reads`, given by id."""
        view = agentcho.View.of([self.brief, *reads])
        said = await self.say(header="The answer is ", view=view, **options)
        return said.text.strip().rstrip(".")
