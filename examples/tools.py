"""A clerk checks the shelves before it answers: functions of this file as tools, with their declarations.

Nobody else learns which shelf the clerk checked, or what it reserved; the customer hears only the answer.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

import agentcho

SHELVES = {"tea": 3, "rice": 0, "salt": 12}
Item = Literal["tea", "rice", "salt"]


@agentcho.tool(audience="nobody", trusted=True)
def stock(item: Item) -> int:
    """How many pieces of an item are on the shelf."""
    return SHELVES[item]


@agentcho.tool(audience="nobody", effect=True, timeout=5)
async def reserve(item: Item, pieces: Annotated[int, Field(ge=1, le=9)]) -> dict[str, int]:
    """Put pieces of an item aside for the customer."""
    if pieces > SHELVES[item]:
        raise ValueError(f"{SHELVES[item]} pieces of {item} are there")
    return {"reserved": pieces}


class Clerk(agentcho.Agent):
    role = "clerk"
    system = "You sell tea, rice and salt. Look into the shelves before you promise anything."
    audience = "everyone"
    tools = (stock, reserve)


class Shop(agentcho.Scenario):
    """A customer asks, and a clerk checks the shelves before answering."""

    class Outcome(agentcho.Scenario.Outcome):
        answer: str

    async def play(self, game: agentcho.Game) -> Outcome:
        clerk, customer = game.cast(Clerk, "clerk"), game.cast(agentcho.Agent, "customer", audience="everyone")
        await customer.say(header="To the clerk: ", max_tokens=40)
        answer = await clerk.say(tool_choice="required", max_calls=2, max_tokens=40)
        return self.Outcome(answer=answer.text)
