"""A sealed auction: each bidder gives the broker one bid that nobody else may read; the winner pays the second price.

agentcho run examples/auction.py --model fake
"""

from __future__ import annotations

from pydantic import BaseModel, Field

import agentcho

WORTH = {"ann": 21, "bob": 13, "carol": 17}


class Bid(BaseModel):
    """What somebody would pay."""

    points: int = Field(ge=0, le=31)


class Auction(agentcho.Scenario):
    """Three bidders know what a vase is worth to them; only the broker reads their bids."""

    name = "auction"

    class Outcome(agentcho.Scenario.Outcome):
        """The winner of the vase, and the price."""

        winner: str
        price: int

    async def play(self, game: agentcho.Game) -> Outcome:
        game.cast(agentcho.Agent, "broker", role="broker")
        bidders = [
            game.cast(agentcho.Agent, name, role="bidder", system=f"To you the vase is worth {worth} points.")
            for name, worth in WORTH.items()
        ]
        await game.announce("A vase is sold to the highest sealed bid, at the price of the second highest.")
        bids = await game.together(*(bidder.answer(Bid, "Your bid?", to="broker") for bidder in bidders))
        ranked = sorted(zip(bids, WORTH, strict=True), key=lambda each: -each[0].points)
        winner, price = ranked[0][1], ranked[1][0].points
        sold = f"The vase goes to {winner} for {price} points."
        await game.announce(sold, release=True)  # the rules of the auction reveal it
        return self.Outcome(winner=winner, price=price)

    def score(self, outcome: Outcome) -> dict[str, float]:
        """The winner's gain, and whether the winner is the bidder who values the vase most."""
        best = max(WORTH, key=WORTH.__getitem__)
        return {"gain": float(WORTH[outcome.winner] - outcome.price), "efficient": float(outcome.winner == best)}
