"""An agent for TextArena's games, and three hands of Kuhn poker against the included player:

agentcho run textarena:KuhnPoker --agents examples/caller.py,player
"""

from __future__ import annotations

from collections.abc import Sequence

import agentcho


class Caller(agentcho.Agent):
    """Never folds. If moves are listed, it chooses one of the others, without thinking."""

    role = "player"
    system = "You play poker, and never fold."

    async def move(self, label: str, moves: Sequence[str]) -> None:
        """Say a move that only this agent may read: the game decides who hears of it."""
        if bold := [move for move in moves if move.casefold() != "[fold]"]:
            await self.choose(bold, to=(), header=label)
        else:
            await self.say(to=(), header=label)


if __name__ == "__main__":
    given = {"agents": f"{__file__},player", "max_rounds": 3}
    played = agentcho.run("textarena:KuhnPoker", given=given, display="plain")
    print(played.games[0].scores)
