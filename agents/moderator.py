"""The moderator of a debate: decides after each round whether to continue, and gives the final answer."""

from __future__ import annotations

from typing import Any

import agentcho


class Moderator(agentcho.Agent):
    """Hears every turn, decides in private after each round, and gives the final answer to everyone.

    `debaters` are the names of the two debaters.
    """

    role = "moderator"
    debaters: tuple[str, str]

    def __init__(self, name: str, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        me, first, second = (each.capitalize() for each in (self.name, *self.debaters))
        self.system = (
            f"Your name is {me}. You lead a debate between {first} and {second} about a small question of "
            "arithmetic. After each round you say whether the debate should go on: finish when both agree on the "
            "answer, continue when they do not. In the end you give the final answer."
        )

    async def finished(self, number: int) -> bool:
        """Its private decision after round `number`, counted from 1: whether the debate is over."""
        me = self.name.capitalize()
        prompt = f"Round {number} is over, {me}. Do both agree on the answer? Say whether to finish or to continue."
        verdict = await self.choose(
            ("finish", "continue"), prompt, to=(), header='{"verdict": ', opening='"', closing='"}', temperature=0
        )
        return verdict == "finish"

    async def conclude(self) -> str:
        """The final answer."""
        prompt = f"The debate is over, {self.name.capitalize()}. Give the final answer as a number."
        said = await self.say(to="everyone", prompt=prompt, header='{"answer": ', stop=("}",), temperature=0)
        return said.text.strip().strip('"')
