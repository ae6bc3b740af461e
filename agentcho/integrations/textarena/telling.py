"""What an environment tells becomes messages of a game, each with the audience that the environment gave it.

Words that a player said in its turn, and the environment hands on as they are, are released: the same tokens before
another audience. Words of a player that were changed on their way are told by that player. All else is the scenario's.
Equal texts to several players stay apart: that they are equal may be a secret. Does not know: moves, rules.
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
"""The kind of an observation that is what a player wrote."""


class ArenaGame(Protocol):
    """What an environment needs of the game that it is played in; `Game` has all of it."""

    seed: int

    @property
    def said(self) -> History:
        """The metadata of all messages that are out, in order."""
        ...

    def cast(self, agent: str, name: str | None = None) -> Any:
        """An agent of that name in `agentcho ls`, in the game under `name`."""
        ...

    def message(self, id: str) -> Message:
        """A message that is out, with its words."""
        ...

    async def announce(self, text: str, to: Names = "everyone") -> str:
        """A message of the scenario; returns its id."""
        ...


class PlayerMove(NamedTuple):
    """A move as its player said it: by number, the label before it, the message, and its text."""

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
        """Pass all of it on, in order. `said` is the move that it comes of."""
        for each in told:
            if each.text.strip():
                await self._pass_on(each, said)

    async def _pass_on(self, each: Observation, said: PlayerMove | None) -> None:
        to = "everyone" if each.to == EVERYBODY else (self._player(each.to).name,)
        own = said is not None and each.author == said.player
        if said is None or not own:
            await self._game.announce(each.text, to)
        elif each.text.strip() == said.text.strip():
            if each.to != said.player:
                await self._players[said.player].release(said.message, to)
        elif each.kind == WRITTEN and each.to != said.player:
            await self._players[said.player].tell(said.label + each.text, to)
        else:
            await self._game.announce(each.text, to)

    def _player(self, number: int) -> Agent:
        if not 0 <= number < len(self._players):
            raise ScenarioError(
                f"{self._name} tells something to player {number}, but there are only {len(self._players)} players"
            )
        return self._players[number]
