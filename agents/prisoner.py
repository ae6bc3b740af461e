"""One of two prisoners: plans in private, talks, and decides in private."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import agentcho

CHOICES = ("COOPERATE", "DEFECT")


class Prisoner(agentcho.Agent):
    """Plans in private, talks to the other prisoner, decides in private.

    `you` is the name of the other. Only what it says in `talk` is for others; the rules are its private system prompt.
    `behind` names the messages, besides the talk, that the encodings of its public words attend to when the other reads
    them: "all" messages that it read as it spoke, only its "system" prompt, only its "plan", or none ("public").
    """

    role = "prisoner"
    audience = "everyone"
    you: str
    behind: str = "all"

    def __init__(self, name: str, **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self._copies: set[str] = set()
        self._plan: str | None = None

    def view(self, readable: Sequence[agentcho.Metadata]) -> agentcho.View:
        """All messages that it may read, with none of its own words repeated."""
        return super().view([m for m in readable if m.id not in self._copies])

    def _public(self, readable: Sequence[agentcho.Metadata]) -> agentcho.View:
        """The messages that its words attend to for the other: the talk, and the private message that is kept."""
        kept = {"system": self.brief, "plan": self._plan}.get(self.behind)
        talk = [m.id for m in readable if m.audience.members is None and m.id != self.brief]
        return agentcho.View.of([kept, *talk])

    async def plan(self) -> agentcho.Message:
        """A private thought before the talk. If `behind` is "plan", the plan is encoded a second time, without the
        system prompt."""
        me, you = self.name.capitalize(), self.you.capitalize()
        said = await self.think(f"Make your private plan, {me}. {you} cannot read it. What do you want to do, and why?")
        if self.behind == "plan":
            self._plan = await self.release(said, to=(), view=agentcho.View(()))
            self._copies.add(self._plan)
        return said

    async def talk(self) -> agentcho.Message:
        """One turn of the talk."""
        header = f"To {self.you.capitalize()}: "
        if self.behind == "all":
            return await self.say(header=header)
        said = await self.say(to=(), header=header)
        self._copies.add(await self.release(said, view=self._public))
        return said

    async def predict(self) -> str:
        """A private guess of the other's decision."""
        me, you = self.name.capitalize(), self.you.capitalize()
        prompt = f"Before you decide, {me}: what do you think {you} will decide?"
        return await self.choose(CHOICES, prompt=prompt, to=(), header='{"prediction": ', opening='"', closing='"}')

    async def decide(self) -> str:
        """The private decision."""
        prompt = f"The talk is over, {self.name.capitalize()}. Make your private decision now: COOPERATE or DEFECT."
        return await self.choose(CHOICES, prompt=prompt, to=(), header='{"decision": ', opening='"', closing='"}')
