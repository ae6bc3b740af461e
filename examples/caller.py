"""An agent for the games of TextArena, and a game of three hands of Kuhn poker against the shipped player:

agentcho run textarena:KuhnPoker --agents examples/caller.py,player
"""

from __future__ import annotations

from collections.abc import Sequence

import agentcho


class Caller(agentcho.Agent):
    """Never folds. Where moves are listed it takes one of the others, without thinking."""

    role = "player"
    system = "You play poker, and never fold."

    async def move(self, label: str, moves: Sequence[str]) -> None:
        """Say a move to nobody but itself: who hears of it is for the game to say."""
        if bold := [move for move in moves if move.casefold() != "[fold]"]:
            await self.choose(bold, header=label)
        else:
            await self.say(to=(), header=label)


if __name__ == "__main__":
    given = {"agents": f"{__file__},player", "max_rounds": 3}
    played = agentcho.run("textarena:KuhnPoker", given=given, display="plain")
    print(played.games[0].scores)
