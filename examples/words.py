"""Bidders know what a painting is worth to them, and reveal no more of it than the rule for words permits."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

import agentcho
from agentcho.errors import LeakageError

WORTH = {"ann": 11, "bob": 7, "carol": 14}


class Bid(BaseModel):
    """One of 32."""

    amount: Annotated[int, Field(ge=0, le=15)]
    last: bool


class Auction(agentcho.Scenario):
    """Each bidder learns its own value in private; then all talk, and bid."""

    name = "auction"

    class Outcome(agentcho.Scenario.Outcome):
        bids: dict[str, int]
        refused: list[str]

    async def play(self, game: agentcho.Game) -> Outcome:
        bidders = [game.cast(agentcho.Agent, name, audience="everyone") for name in WORTH]
        for bidder in bidders:
            await game.announce(f"The painting is worth {WORTH[bidder.name]} to you.", to=[bidder.name])
        outcome = self.Outcome(bids={}, refused=[])
        for bidder in bidders:
            try:
                await bidder.say(max_tokens=12)  # after reading its own value
            except LeakageError:
                outcome.refused.append(bidder.name)
                # Reads only what everyone may read:
                await bidder.say(view=lambda there: agentcho.View.open_to(there, "everyone"), max_tokens=12)
            bid = await bidder.answer(Bid, to="everyone")  # reveals at most 5 bits of its value
            outcome.bids[bidder.name] = bid.amount
        return outcome
