"""The interface of an environment, which asks one player after another for a text and tells players what they see.

Independent of TextArena (see `package`), agents and games.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

NOBODY = -1
"""The author of an observation that no player wrote."""
EVERYBODY = -1
"""The recipient of an observation that all players see."""


class Observation(NamedTuple):
    """What an environment tells: from a player (numbered from 0) or `NOBODY`, to a player or `EVERYBODY`. `kind` is the
    environment's term for it, such as "PROMPT", "PLAYER_ACTION" or "GAME_BOARD"."""

    author: int
    to: int
    kind: str
    text: str


class PlayerTurn(NamedTuple):
    """The player to move, and what that player sees at the start of the turn that nobody was told before."""

    player: int
    seen: Sequence[Observation] = ()


class MoveResult(NamedTuple):
    """The result of a move: whether the game is over, and the observations that followed, in order."""

    over: bool
    told: Sequence[Observation] = ()


class GameEnding(NamedTuple):
    """How a game ended: rewards by player as the environment gives them (None: it was cut off), and what the
    environment says about each player."""

    rewards: Any
    players: Mapping[int, Mapping[str, Any]]


class Environment(Protocol):
    """One game of an environment. Each method may take long or never return; see `watch`."""

    def reset(self, players: int, seed: int) -> Sequence[Observation]:
        """Start the game; return the first observations."""

    def turn(self) -> PlayerTurn:
        """Return the player to move."""

    def step(self, text: str) -> MoveResult:
        """Make a move for the player to move."""

    def close(self) -> GameEnding:
        """End the game; return how it ended."""


Make = Callable[[], Environment]
"""Makes the environment of one game."""
