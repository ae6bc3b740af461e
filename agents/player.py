"""Plays a game that an environment runs: thinks in private, then says only its move."""

from __future__ import annotations

from collections.abc import Sequence

import agentcho

THINK = "It is your turn. Think about what to do, briefly and in private: nobody else sees what you think."


class Player(agentcho.Agent):
    """Thinks in private, then says its move and nothing else. If moves are listed, it says one of them.

    It reads its system prompt, the rules that it was told first, and the last `memory` messages after those. It does
    not read its own moves again when the environment repeats them to others. `thoughts` is the maximum number of tokens
    of a thought; 0: it does not think.
    """

    role = "player"
    open_system = True
    system = (
        "You are a player in a game of words. Read its rules, and play to win. In your turn, say your move and nothing "
        "else, in the form that the rules ask for, such as [move]. What stands after the name of another player was "
        "said by that player."
    )
    memory: int = 30
    thoughts: int = 96

    def view(self, readable: Sequence[agentcho.Metadata]) -> agentcho.View:
        """The system prompt, the rules, and the last messages."""
        me = self.name
        first, *kept = [m for m in readable if not (m.author == me and m.kind == "prefill" and m.role == "assistant")]
        rules, rest = kept[:1], kept[1:]
        return agentcho.View.of([first, *rules, *rest[max(0, len(rest) - self.memory) :]])

    async def move(self, label: str, moves: Sequence[str]) -> None:
        """Say a move that only this agent may read: the environment decides who hears of it. `label` comes before the
        move and names the player; `moves` are the possible moves, empty if they were not listed."""
        if self.thoughts:
            await self.think(THINK, max_tokens=self.thoughts)
        if moves:
            await self.choose(moves, to=(), header=label)
        else:
            await self.say(to=(), header=label)
