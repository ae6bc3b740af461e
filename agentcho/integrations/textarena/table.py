"""Plays one game: asks the player to move, passes the move to the environment, and tells the result, until the game is
over.

The environment decides what a move means and who hears of it. Here a move is only said in private and handed over.
Independent of where the environment comes from, and of scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from agentcho.agent import Agent
from agentcho.errors import ScenarioError
from agentcho.integrations.textarena.environment import EVERYBODY, Environment, GameEnding, Observation
from agentcho.integrations.textarena.moves import of_player
from agentcho.integrations.textarena.telling import ArenaGame, PlayerMove, Teller
from agentcho.integrations.textarena.watch import Watched
from agentcho.message import Audience, Metadata

T = TypeVar("T")
REFUSED = "GAME_ADMIN"
"""The kind of an observation that tells a player that its move was invalid."""
SEED = 1 << 31


class TextArenaTable:
    """One game. `players` are in order of their numbers, `name` is the environment's name for errors, `seconds` the
    time limit for one call of it."""

    def __init__(
        self, game: ArenaGame, players: Sequence[Agent], environment: Environment, name: str, seconds: float
    ) -> None:
        self._game = game
        self._players = players
        self._environment = environment
        self._name, self._seconds = name, seconds
        self._teller = Teller(game, players, name)
        self._since: list[list[Observation]] = [[] for _ in players]
        self._choices: list[tuple[str, ...]] = [() for _ in players]

    async def play(self, most: int) -> tuple[GameEnding, int]:
        """Play until the game is over, for at most `most` moves. Returns how it ended and the number of moves."""
        environment = self._environment
        moves = 0
        over = False
        begin = partial(environment.reset, len(self._players), self._game.seed % SEED)
        await self._tell(await self._call("reset", begin))
        while not over and moves < most:
            player, seen = await self._call("get_observation", environment.turn)
            await self._tell(seen)
            said = await self._move(player)
            over, told = await self._call("step", partial(environment.step, said.text))
            await self._tell(told, said)
            moves += 1
        ending = await self._call("close", environment.close)
        return (ending if over else ending._replace(rewards=None)), moves

    async def _call(self, what: str, work: Callable[[], T]) -> T:
        return await Watched(work, f"{self._name}: its {what}", self._seconds).wait_beside()

    async def _tell(self, told: Sequence[Observation], said: PlayerMove | None = None) -> None:
        for player, since in enumerate(self._since):
            since += [each for each in told if each.to in (player, EVERYBODY)]
        await self._teller.tell(told, said)

    async def _move(self, player: int) -> PlayerMove:
        """Ask for one move, said in private."""
        if not 0 <= player < len(self._players):
            raise ScenarioError(
                f"{self._name} asks player {player} for a move, but there are only {len(self._players)} players"
            )
        agent = self._players[player]
        label = f"[Player {player}] "
        choices = self._listed(player)
        before = self._last(agent)
        if (move := getattr(agent, "move", None)) is not None:
            await move(label, choices)
        elif choices:
            await agent.choose(choices, to=(), header=label)
        else:
            await agent.say(to=(), header=label)
        said = self._last(agent)
        if said is None or said == before:
            raise ScenarioError(
                f"{agent.name} ({type(agent).__name__}) said nothing in its turn; say one message in its `move`"
            )
        if said.audience != Audience(frozenset({agent.name})):
            what = f"{agent.name} ({type(agent).__name__}) said its move to {said.audience}"
            raise ScenarioError(f"{what}; say it to nobody (`to=()`), because the environment decides who hears of it")
        message = self._game.message(said.id)
        text, self._since[player] = message.text, []
        self._choices[player] = tuple(each for each in choices if each != text)
        return PlayerMove(player, label, message, text)

    def _listed(self, player: int) -> tuple[str, ...]:
        """The moves listed to a player since its last move. If that move was refused and nothing new was listed, the
        rest of the previous list."""
        since = self._since[player]
        refused = any(each.kind == REFUSED and each.to == player for each in since)
        return of_player(player, since) or (self._choices[player] if refused else ())

    def _last(self, agent: Agent) -> Metadata | None:
        """The last message of an agent."""
        said = self._game.said.backwards(agent.name)
        own = (each for each in said if each.kind == "decode" and each.author == agent.name)
        return next(own, None)
