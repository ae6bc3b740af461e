"""Solves a question in short steps, alone or alongside other solvers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import agentcho

ALONE = "You solve a question of arithmetic. Work in short steps and end with your answer."
AMONG = "You and others discuss a question of arithmetic. Work in short steps and end with your answer."


class Solver(agentcho.Agent):
    """Works on a question and ends with "The answer is …". What it says is for everyone.

    `among` True: it knows that others work on the question, and with `named` also its own name. Otherwise its prompt
    names nobody, so solvers differ only by their random numbers; the prompt is open, and all solvers share one message.
    """

    role = "solver"
    audience = "everyone"
    open_system = True
    among: bool = False
    named: bool = True

    def __init__(self, name: str, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        named = self.among and self.named
        told = AMONG if self.among else ALONE
        self.system = f"Your name is {self.name.capitalize()}. {told}" if named else told
        self.open_system = self.open_system and not named

    async def propose(self, number: int) -> agentcho.Message:
        """A solution, numbered for the agents that judge it."""
        return await self.say(header=f"Solution {number}: ")

    async def discuss(self, question: str, before: Sequence[str]) -> agentcho.Message:
        """A turn in which it reads only the question and earlier rounds: messages, given by id."""
        return await self.say(view=agentcho.View.of([self.brief, question, *before]))
