"""Turns observations of an environment into messages of a game, each with the audience that the environment gave it.

A move that the environment passes on unchanged is released: the same tokens for another audience. A move that was
changed on the way is told by its player. Everything else is said by the scenario. Equal texts to several players stay
separate messages, because their being equal may be a secret. Independent of moves and rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from agentcho.agent import Agent, Names
from agentcho.errors import ScenarioError
from agentcho.integrations.textarena.environment import EVERYBODY, Observation
from agentcho.message import Message
from agentcho.provenance.views import History

WRITTEN = "PLAYER_ACTION"
"""The kind of an observation that repeats what a player wrote."""


class ArenaGame(Protocol):
    """The part of `Game` that an environment needs."""

    seed: int

    @property
    def said(self) -> History:
        """The metadata of all messages so far, in order."""
        ...

    def cast(self, agent: str, name: str | None = None) -> Any:
        """Cast the agent with that name in `agentcho ls`, under `name` in the game."""
        ...

    def message(self, id: str) -> Message:
        """A message by its id, with its words."""
        ...

    async def announce(self, text: str, to: Names = "everyone") -> str:
        """Send a message of the scenario; return its id."""
        ...


class PlayerMove(NamedTuple):
    """A move as said: the player's number, the label before it, the message, and its text."""

    player: int
    label: str
    message: Message
    text: str


class Teller:
    """Tells the players of one game what its environment tells them. `name` is the environment's, for errors."""

    def __init__(self, game: ArenaGame, players: Sequence[Agent], name: str) -> None:
        self._game = game
        self._players = players
        self._name = name

    async def tell(self, told: Sequence[Observation], said: PlayerMove | None = None) -> None:
        """Pass on all observations in order. `said` is the move that caused them."""
        for each in told:
            if each.text.strip():
                await self._pass_on(each, said)

    async def _pass_on(self, each: Observation, said: PlayerMove | None) -> None:
        to = "everyone" if each.to == EVERYBODY else (self._player(each.to).name,)
        own = said is not None and each.author == said.player
        if said is None or not own:
            await self._game.announce(each.text, to=to)
        elif each.text.strip() == said.text.strip():
            if each.to != said.player:
                await self._players[said.player].release(said.message, to=to)
        elif each.kind == WRITTEN and each.to != said.player:
            await self._players[said.player].tell(said.label + each.text, to=to)
        else:
            await self._game.announce(each.text, to=to)

    def _player(self, number: int) -> Agent:
        if not 0 <= number < len(self._players):
            raise ScenarioError(
                f"{self._name} tells something to player {number}, but there are only {len(self._players)} players"
            )
        return self._players[number]
