"""What an arena plays: an environment that asks one player after the other for a text, and tells players what they see.

Does not know: where environments come from (see `textarena`), agents, games.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

NOBODY = -1
"""Who an observation is from that no player wrote."""
EVERYBODY = -1
"""Whom an observation is for that all players see."""


class Observation(NamedTuple):
    """What an environment tells: from a player, by number from 0, or `NOBODY`; to a player, or `EVERYBODY`. `kind` is
    the environment's word for what it is, such as "PROMPT", "PLAYER_ACTION" or "GAME_BOARD"."""

    author: int
    to: int
    kind: str
    text: str


class PlayerTurn(NamedTuple):
    """Whose turn it is, and what that player sees at its beginning that was told to nobody before."""

    player: int
    seen: Sequence[Observation] = ()


class MoveResult(NamedTuple):
    """What came of a move: whether the game is over, and what was told to whom, in order."""

    over: bool
    told: Sequence[Observation] = ()


class GameEnding(NamedTuple):
    """How a game ended: rewards by player, as the environment gives them (None: it was cut off), and what it says of
    each player."""

    rewards: Any
    players: Mapping[int, Mapping[str, Any]]


class Environment(Protocol):
    """One game of an environment. Each method may take long, or never return; see `watch`."""

    def reset(self, players: int, seed: int) -> Sequence[Observation]:
        """Begin, and say what was told to whom."""

    def turn(self) -> PlayerTurn:
        """Who is to move."""

    def step(self, text: str) -> MoveResult:
        """Make the move of whose turn it is."""

    def close(self) -> GameEnding:
        """How it ended."""


Make = Callable[[], Environment]
"""Makes the environment of one game."""
