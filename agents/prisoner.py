"""One of two prisoners: plans in private, talks, and decides in private."""

from __future__ import annotations

import agentcho

CHOICES = ("COOPERATE", "DEFECT")


class Prisoner(agentcho.Agent):
    """Plans in private, talks to the other prisoner, decides in private.

    `you` is the other's id. Only what it says in `talk` is for others; the rules are its private system prompt.
    """

    role = "prisoner"
    audience = "everyone"
    you: str

    async def plan(self) -> agentcho.Message:
        """A private thought before the talk."""
        me, you = self.name.capitalize(), self.you.capitalize()
        return await self.think(f"Make your private plan, {me}. {you} cannot read it. What do you want to do, and why?")

    async def talk(self) -> agentcho.Message:
        """One turn of the talk."""
        return await self.say(header=f"To {self.you.capitalize()}: ")

    async def predict(self) -> str:
        """A private guess of what the other will decide."""
        me, you = self.name.capitalize(), self.you.capitalize()
        prompt = f"Before you decide, {me}: what do you think {you} will decide?"
        return await self.choose(CHOICES, prompt=prompt, header='{"prediction": ', opening='"', closing='"}')

    async def decide(self) -> str:
        """The private decision."""
        prompt = f"The talk is over, {self.name.capitalize()}. Make your private decision now: COOPERATE or DEFECT."
        return await self.choose(CHOICES, prompt=prompt, header='{"decision": ', opening='"', closing='"}')
