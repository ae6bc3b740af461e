"""A scenario in which an environment asks players for moves: their number, their agents, and the outcome.

Independent of TextArena (see `named`) and of how a turn goes (see `table`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, ClassVar

from pydantic import Field

from agentcho.errors import ConfigError, ScenarioError
from agentcho.integrations.textarena.environment import Environment, GameEnding
from agentcho.integrations.textarena.table import TextArenaTable
from agentcho.integrations.textarena.telling import ArenaGame
from agentcho.integrations.textarena.watch import Watched
from agentcho.scenario import Scenario

MOST_PLAYERS = 16
SHOWN = 300
"""Maximum characters that are kept of what an environment says."""


class Arena(Scenario):
    """Players whom an environment asks for a move, one after the other.

    Each player reads what the environment tells it and what it tells everyone, and nothing that it tells another. The
    rewards are the scores. What the environment does not allow is handled by its own rule. Subclass it and write
    `environment`.
    """

    name = "arena"

    class Options(Scenario.Options):
        """Options common to all environments; each environment adds its own."""

        agents: str = Field(
            "player", description="agents from `agentcho ls`: one for all players, or one per player: a,b"
        )
        players: int | None = Field(
            None,
            ge=1,
            le=MOST_PLAYERS,
            description="number of players; default: the smallest that the environment allows",
        )
        moves: int = Field(500, ge=1, description="number of moves after which a game is cut off, without rewards")
        seconds: float = Field(10.0, gt=0, le=86_400, description="seconds that the environment may take for one move")

    class Outcome(Scenario.Outcome):
        """How a game ended. `rewards` is None if it was cut off. `invalid` are the players who ended, or ended the
        game, by an invalid move. `roles` are the roles that the environment gives the players. `note` applies to every
        game of the environment."""

        rewards: dict[str, float] | None
        reason: str | None
        roles: dict[str, str]
        invalid: tuple[str, ...]
        moves: int
        note: str | None = None

    note: ClassVar[str | None] = None
    options: Options

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.count = self._count()

    def environment(self) -> Environment:
        """A new environment, for one game."""
        raise NotImplementedError

    def agents(self) -> list[str]:
        """The agents that play: one for all players, or one per player."""
        return [name.strip() for name in self.options.agents.split(",")]

    def casts(self) -> tuple[str, ...]:
        return tuple(self.agents())

    async def play(self, game: ArenaGame) -> Outcome:
        agents = self.agents() * (self.count if len(self.agents()) == 1 else 1)
        players = [game.cast(agent, name=named(number)) for number, agent in enumerate(agents)]
        made, moves = await TextArenaTable(
            game=game, players=players, environment=self.environment(), name=self.name, seconds=self.options.seconds
        ).play(self.options.moves)
        return self._outcome(made, moves)

    def score(self, outcome: Any) -> dict[str, float]:
        """The rewards, and for each player whether it ended by an invalid move."""
        rewards: dict[str, float] | None = outcome.rewards
        if rewards is None:
            return {}
        return rewards | {f"{who} invalid": float(who in outcome.invalid) for who in rewards}

    def _outcome(self, ending: GameEnding, moves: int) -> Outcome:
        said = {named(number): about for number, about in ending.players.items()}
        reasons = [str(about["reason"]) for about in said.values() if about.get("reason")]
        return self.Outcome(
            rewards=None if ending.rewards is None else self._rewards(ending.rewards),
            reason=reasons[0][:SHOWN] if reasons else None,
            roles={named(number): role for number, role in _roles(ending.players)},
            note=self.note,
            invalid=tuple(who for who, about in said.items() if about.get("invalid_move")),
            moves=moves,
        )

    def _rewards(self, given: Any) -> dict[str, float]:
        """Rewards by player. `ScenarioError`: they are not numbers."""
        try:
            found = {named(int(number)): float(reward) for number, reward in sorted(given.items())}
        except (AttributeError, TypeError, ValueError):
            found = {}
        if not found or not all(map(isfinite, found.values())):
            kinds = (
                {type(each).__name__ for each in given.values()}
                if isinstance(given, Mapping)
                else {type(given).__name__}
            )
            raise ScenarioError(f"{self.name} gave rewards that are not numbers by player ({', '.join(sorted(kinds))})")
        return found

    def _count(self) -> int:
        """The number of players. `ConfigError`: the environment does not allow it, or the number of agents does not
        match."""
        who = self.agents()
        if not all(who):
            raise ConfigError(f"{self.name}: agents is {self.options.agents!r}; give names separated by commas")
        asked: int | None = self.options.players or (len(who) if len(who) > 1 else None)
        if asked is not None and len(who) not in (1, asked):
            raise ConfigError(
                f"{self.name}: {len(who)} agents for {asked} players; give one agent for all players, or one per player"
            )
        tried: tuple[int, ...] = (asked,) if asked is not None else (*range(2, MOST_PLAYERS + 1), 1)
        why: list[str] = []
        for many in tried:
            if self._begins(many, why):
                return many
        raise self._wrong(asked, why[0])

    def _wrong(self, asked: int | None, why: str) -> ConfigError:
        fit = [many for many in range(1, MOST_PLAYERS + 1) if asked is not None and self._begins(many, [])]
        if not fit:
            return ConfigError(f"{self.name} cannot be started with these options: {why}")
        said = ", ".join(map(str, fit))
        return ConfigError(
            f"{self.name} does not allow {asked} players: {why}. It allows {said}; give --set players={fit[0]}"
        )

    def _begins(self, players: int, why: list[str]) -> bool:
        """Whether the environment accepts this number of players. `ScenarioError`: it does not return in time."""

        def begin() -> None:
            self.environment().reset(players, 0)

        try:
            Watched(begin, f"{self.name}: its reset", self.options.seconds).wait()
        except ScenarioError:
            raise
        except Exception as error:
            why.append(f"{type(error).__name__}: {' '.join(str(error).split())[:SHOWN].rstrip('.')}")
            return False
        return True


def named(number: int) -> str:
    """The name of a player."""
    return f"player-{number}"


def _roles(players: Mapping[int, Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    """The roles of players by number, without those that only repeat the player's number."""
    for number, about in players.items():
        role = str(about.get("role", ""))
        if role and role != f"Player {number}":
            yield number, role
