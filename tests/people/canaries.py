"""A scenario that puts canaries, numbered by place, into everything that Bob may not read."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Literal

from pydantic import BaseModel

import agentcho


class Vote(BaseModel):
    """Who goes, and why."""

    who: Literal["alice", "carol"]
    why: str
    sure: bool = False


class Canaries(agentcho.Scenario):
    """Alice and Carol have secrets from Bob."""

    name = "canaries"

    class Options(agentcho.Scenario.Options):
        """`breaks`: raises an error after Bob's first words."""

        breaks: bool = False
        secret: str = "CANARY0"

    class Outcome(agentcho.Scenario.Outcome):
        """The result of the game."""

        winner: str
        vote: str

    options: Options

    async def play(self, game: agentcho.Game) -> Outcome:
        alice = game.cast(agentcho.Agent, name="alice", system="CANARY1", role="CANARY2")
        bob = game.cast(agentcho.Agent, name="bob", system="You are Bob.", audience="everyone")
        carol = game.cast(agentcho.Agent, name="carol", system="CANARY3")
        await game.announce("CANARY4", to=("alice", "carol"))
        await game.announce("\x1b]0;title\x07\x1b[2JBegin \u202eall.")
        await alice.tell("CANARY5", to="carol")
        await alice.choose(["CANARY6", "CANARY6b"], "CANARY7")
        print("CANARY8", flush=True)
        print("CANARY9", file=sys.stderr, flush=True)
        warnings.warn("CANARY10", stacklevel=1)
        logging.getLogger("mine").error("CANARY11")
        async with alice.stream(prompt="CANARY12") as pieces:
            async for _ in pieces:
                pass
        await game.together(alice.choose(["OPEN13"], to="everyone"), bob.say(header="To all: ", max_tokens=8))
        if self.options.breaks:
            raise ValueError("CANARY14")
        vote = await bob.answer(Vote, "Who goes?")
        await alice.tell(f"CANARY15 {vote.why}", to="carol")
        last = await bob.choose(["stay", "go"], opening="<", closing=">")
        await carol.think("CANARY16")
        return self.Outcome(winner="CANARY17", vote=last)

    def score(self, outcome: Outcome) -> dict[str, float]:
        return {"CANARY18": 1.0}
