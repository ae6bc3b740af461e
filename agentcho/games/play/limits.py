"""Limits of a game and of its agents: counts, clocks, and the error that ends a game as an outcome.

Reaching a limit is not a failure, so it must be distinguishable from errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

import anyio

from agentcho.config import Limits
from agentcho.errors import LimitReached
from agentcho.message import Message

GAME = "the game"


def only_limit(error: BaseException, *, within: frozenset[int] = frozenset()) -> LimitReached | None:
    """Return the first limit if an error consists of limits only, otherwise None.

    An error counts as a limit if it is one, was raised while one was handled, or is a group of such errors, as raised
    by task groups. `within` holds the ids of the errors that led here, because an error may be the context of a group
    that contains it.
    """
    within |= {id(error)}
    if isinstance(error, BaseExceptionGroup):
        limits = [only_limit(each, within=within) for each in error.exceptions]
        return None if None in limits else limits[0]
    if isinstance(error, LimitReached):
        return error
    before = error.__cause__ or error.__context__
    return None if before is None or id(before) in within else only_limit(before, within=within)


class Meter:
    """Counts one game's sampled tokens and decodes, by agent, and its seconds on the event loop's clock.

    `reached` is the first limit that was reached. The game is over from then on: what runs within `deadline(None)` is
    cancelled, whether or not its code catches the `LimitReached` that it got.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._tokens: Counter[str] = Counter()
        self._messages: Counter[str] = Counter()
        self._started = 0.0
        self._game: anyio.CancelScope | None = None
        self.reached: LimitReached | None = None

    def start(self) -> None:
        """Start the clock of the game."""
        self._started = anyio.current_time()

    def elapsed(self) -> float:
        """Return the seconds since the game began."""
        return anyio.current_time() - self._started

    def count(self, message: Message, tokens: int | None = None) -> None:
        """Count a finished decode. `tokens` is as in `spend`."""
        self.spend(message, tokens)
        for who in (message.author or GAME, GAME):
            self._messages[who] += 1

    def spend(self, message: Message, tokens: int | None = None) -> None:
        """Count the tokens of a decode, finished or not. None counts the sampled tokens of the message."""
        start, stop = message.words.sampled or (0, 0)
        for who in (message.author or GAME, GAME):
            self._tokens[who] += stop - start if tokens is None else tokens

    def check(self, agent: str) -> None:
        """Raise `LimitReached` if this agent or the game has no tokens or messages left."""
        for what, who, used, limit in self._uses(agent):
            if limit is not None and used >= limit:
                raise self._reach(what, who, limit)

    def check_after(self, agent: str) -> None:
        """Raise `LimitReached` if a message has used up its author's or the game's tokens."""
        for what, who, used, limit in self._uses(agent):
            if what == "tokens" and limit is not None and used >= limit:
                raise self._reach(what, who, limit)

    def tokens_left(self, agent: str) -> int | None:
        """Return how many tokens an agent may still sample under its own limit. None if there is none."""
        limit = self._limits.agent_tokens
        return None if limit is None else limit - self._tokens[agent]

    def all_left(self) -> int | None:
        """Return how many tokens all agents together may still sample, which depends on others. None if unlimited."""
        limit = self._limits.game_tokens
        return None if limit is None else limit - self._tokens[GAME]

    @contextmanager
    def deadline(self, agent: str | None) -> Iterator[None]:
        """A context that is cancelled when the time of the agent, or of the game for None, is over.

        Raises `LimitReached` then. For the game, it is raised for any limit that was reached inside.
        """
        limit = self._limits.game_seconds if agent is None else self._limits.agent_seconds
        with anyio.CancelScope(deadline=inf if limit is None else self._started + limit) as scope:
            if agent is None:
                self._game = scope
            yield
        over = scope.cancelled_caught if agent is not None else scope.cancel_called and self.reached is None
        if over and limit is not None:
            raise self._reach("seconds", agent or GAME, limit)
        if agent is None and self.reached is not None:
            raise self.reached

    def _reach(self, what: str, who: str, limit: float) -> LimitReached:
        """Note that a limit is reached, and end the game. Returns the error for the first caller."""
        error = LimitReached(what, who, limit)
        if self.reached is None:
            self.reached = error
        if self._game is not None:
            self._game.cancel()
        return error

    def _uses(self, agent: str) -> Iterator[tuple[str, str, float, float | None]]:
        limits = self._limits
        yield "tokens", agent, self._tokens[agent], limits.agent_tokens
        yield "messages", agent, self._messages[agent], limits.agent_messages
        yield "tokens", GAME, self._tokens[GAME], limits.game_tokens
        yield "messages", GAME, self._messages[GAME], limits.game_messages
