"""A debater who works on a question in short steps, turn by turn."""

from __future__ import annotations

from typing import Any

import agentcho

PARTS = {
    "argue": "you argue for your own careful answer",
    "check": "you check the other's answer and correct it when it is wrong",
}


class Debater(agentcho.Agent):
    """Argues for its own answer, or checks the other debater's. Everything it says is for everyone.

    `you` is the name of the other debater, `lead` that of the moderator, and `part` is "argue" or "check".
    """

    role = "debater"
    audience = "everyone"
    you: str
    lead: str
    part: str

    def __init__(self, name: str, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        me, you, lead = (each.capitalize() for each in (self.name, self.you, self.lead))
        self.system = (
            f"Your name is {me}. You and {you} discuss a small question of arithmetic. {lead} leads the debate. "
            f"Your role: {PARTS[self.part]}. Work in short steps and end with your answer."
        )

    async def argue(self) -> agentcho.Message:
        """One turn of the debate."""
        return await self.say()
