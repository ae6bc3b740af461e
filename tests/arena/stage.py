"""Small environments without TextArena, each with a pitfall, and agents that play in them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from agentcho import Agent
from agentcho.config import RunConfig
from agentcho.events import Joined
from agentcho.integrations.textarena.environment import Environment, GameEnding, MoveResult, Observation, PlayerTurn
from agentcho.integrations.textarena.scenario import Arena
from agentcho.testing import play
from agentcho.testing.rehearsal import Rehearsal

CARDS = ("the-ace-of-spades", "the-queen-of-hearts", "the-two-of-clubs")


class Cards:
    """Deals each player a private card, asks each for a word once, passes it on by `told`, and lets player 0 win.
    Refuses the word "bad" and asks the player again."""

    def __init__(self, most: int = 3, cards: Sequence[str] = CARDS) -> None:
        self._most, self._cards = most, cards
        self._random = random.Random()
        self._players = self._next = 0

    def reset(self, players: int, seed: int) -> list[Observation]:
        if not 2 <= players <= self._most:
            raise ValueError(f"from 2 to {self._most} players")
        self._random.seed(seed)
        self._players = players
        return [*(self.rules(each) for each in range(players)), *(self.card(each) for each in range(players))]

    def rules(self, player: int) -> Observation:
        return Observation(-1, player, "PROMPT", f"You are Player {player}. Say a word.")

    def card(self, player: int) -> Observation:
        return Observation(-1, player, "GAME_MESSAGE", f"You hold {self._cards[player]}.")

    def turn(self) -> PlayerTurn:
        return PlayerTurn(self._next)

    def step(self, text: str) -> MoveResult:
        if text == "bad":
            return MoveResult(False, [Observation(-1, self._next, "GAME_ADMIN", "That is not allowed. Once more.")])
        told = self.told(self._next, text)
        self._next += 1
        return MoveResult(self._next == self._players, told)

    def told(self, player: int, text: str) -> list[Observation]:
        """The observations that follow a word: it goes to everyone, and a random player is praised."""
        praised = self._random.randrange(self._players)
        return [
            Observation(player, -1, "PLAYER_ACTION", text),
            Observation(-1, -1, "GAME_MESSAGE", f"Player {praised} is praised."),
        ]

    def close(self) -> GameEnding:
        return GameEnding(self.rewards(), {each: {"role": f"Player {each}"} for each in range(self._players)})

    def rewards(self) -> Any:
        return {each: 1 if each == 0 else -1 for each in range(self._players)}


class Hanging(Cards):
    """Its second step does not return until `let_go` is set or its thread is asked to end, which sets `ended`."""

    let_go = threading.Event()
    ended = threading.Event()

    def step(self, text: str) -> MoveResult:
        if self._next == 1:
            try:
                while not self.let_go.wait(0.001):
                    pass
            finally:
                self.ended.set()
        return super().step(text)


def arena(make: Callable[[], Environment], **options: Any) -> Arena:
    """A scenario around such an environment."""

    class Here(Arena):
        name = "textarena:here"

        def environment(self) -> Environment:
            return make()

    return Here(**options)


class Silent(Agent):
    """Says its move, without thinking."""

    async def move(self, label: str, moves: Sequence[str]) -> None:
        if moves:
            await self.choose(moves, header=label)
        else:
            await self.say(to=(), header=label)


def played(scenario: Arena, agent: type[Agent] = Silent, replies: Any = None, **how: Any) -> Rehearsal:
    """One game on the fake engine, all players being of one agent class."""
    config = RunConfig(model="fake", **how)
    return play(scenario, replies, config=config, find_agent=lambda name: agent)


def joined(rehearsal: Rehearsal) -> list[str]:
    return [event.agent for event in rehearsal.events if isinstance(event, Joined)]
