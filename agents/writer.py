"""Writes a short text with the words of one group."""

from __future__ import annotations

from typing import Any

import agentcho


class Writer(agentcho.Agent):
    """Uses every word of its group in a short text. What it says is for everyone.

    `group` is the number of its group, 1 or 2.
    """

    role = "writer"
    audience = "everyone"
    group: int

    def __init__(self, name: str, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self.system = f"You write a short text that uses every word of group {self.group}."

    async def write(self) -> agentcho.Message:
        """Its text, with the number of its group."""
        return await self.say(header=f"Text {self.group}: ")
