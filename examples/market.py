"""A market of many traders: each has a private value, all name a price at once, and matching pairs trade.

agentcho run examples/market.py --model fake --set traders=100
"""

from __future__ import annotations

from random import Random

from pydantic import BaseModel, Field

import agentcho

RULES = "Sellers and buyers of one bag of rice each. Name your price; whoever bids at least what another asks, trades."


class Price(BaseModel):
    """What a trader asks or bids."""

    points: int = Field(ge=1, le=99)


class Market(agentcho.Scenario):
    """As many sellers as buyers, who see the prices of earlier days but not each other's values."""

    name = "market"

    class Options(agentcho.Scenario.Options):
        """The number of traders, and of days."""

        traders: int = Field(10, ge=2, multiple_of=2)
        days: int = Field(2, ge=1)

    class Outcome(agentcho.Scenario.Outcome):
        """The number of trades on the last day, and their mean price."""

        trades: int
        price: float

    options: Options

    async def play(self, game: agentcho.Game) -> Outcome:
        dice, half = Random(f"{game.seed} values"), self.options.traders // 2
        kinds = ["seller"] * half + ["buyer"] * half
        traders = [
            game.cast(
                agentcho.Agent,
                f"{kind}-{number}",
                role=kind,
                system=f"You are a {kind}. To you a bag of rice is worth {dice.randint(20, 80)} points.",
            )
            for number, kind in enumerate(kinds, 1)
        ]
        await game.announce(RULES)
        pairs: list[tuple[int, int]] = []
        for day in range(1, self.options.days + 1):
            named = await game.together(*(trader.answer(Price, to=[trader.name]) for trader in traders))
            asks = sorted(each.points for each in named[:half])
            bids = sorted((each.points for each in named[half:]), reverse=True)
            pairs = [(ask, bid) for ask, bid in zip(asks, bids, strict=True) if bid >= ask]
            await game.announce(f"Day {day}: {len(pairs)} bags were sold, at {self.mean(pairs):.1f} points on average.")
        return self.Outcome(trades=len(pairs), price=self.mean(pairs))

    def mean(self, pairs: list[tuple[int, int]]) -> float:
        """The mean of the prices halfway between ask and bid; 0 if nothing was sold."""
        return sum((ask + bid) / 2 for ask, bid in pairs) / max(1, len(pairs))

    def score(self, outcome: Outcome) -> dict[str, float]:
        """The number of trades, and their price."""
        return {"trades": float(outcome.trades), "price": outcome.price}
