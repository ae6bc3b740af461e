"""The time to a first token over a long prompt that comes in pieces, compared with the same prompt at once: announced
as a whole at the moment of its last piece, or encoded before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from random import Random
from time import perf_counter
from typing import Any

import anyio

from agentcho.agent import Agent
from agentcho.choreography.choreographer import Choreographer
from agentcho.config import RunConfig
from agentcho.games.play.game import Game
from agentcho.lab.bench.result import Figures, Result
from agentcho.lab.timing import turns
from agentcho.protocol.progress import ProgressCallback
from agentcho.scenario import Scenario

STREAMED, WHOLE, BEFORE = ARMS = ("streamed", "announced whole", "encoded before")
CLOSE, PIECE = TIMES = "after the close", "after the last piece"
"""The figures: seconds to the first token from the return of the call that completes the prompt, and from the moment
its last piece is handed over."""
WORDS = ("the", "a", "river", "mill", "market", "winter", "letter", "bridge", "answer", "old", "opens", "carries")
Put = Callable[[Game, list[str]], Awaitable[tuple[float, float]]]
"""Sends a prompt in these pieces; returns the times of its last piece and of its completion."""


class Reader(Scenario):
    """One agent says one token over a prompt. `times` are the figures of this game."""

    name = "reader"

    class Outcome(Scenario.Outcome):
        """Empty: only the times matter."""

    def __init__(self, put: Put, pieces: list[str]) -> None:
        super().__init__()
        self._put, self._pieces = put, pieces
        self.times: dict[str, float] = {}

    async def play(self, game: Game) -> Scenario.Outcome:
        for name in ("ann", "bob"):
            game.cast(Agent, name)
        last, closed = await self._put(game, self._pieces)
        await game.agents["ann"].say(to="ann", max_tokens=1)
        now = perf_counter()
        self.times = {CLOSE: now - closed, PIECE: now - last}
        return self.Outcome()


async def _streamed(game: Game, pieces: list[str]) -> tuple[float, float]:
    async with game.streamed() as prompt:
        for piece in pieces[:-1]:
            await prompt.write(piece)
        last = perf_counter()
        await prompt.write(pieces[-1])
    return last, perf_counter()


async def _announced(game: Game, pieces: list[str]) -> tuple[float, float]:
    last = perf_counter()
    await game.announce("".join(pieces))
    return last, perf_counter()


async def _encoded(game: Game, pieces: list[str]) -> tuple[float, float]:
    """Another agent has read the prompt before."""
    await game.announce("".join(pieces))
    await game.agents["bob"].say(to="bob", max_tokens=1)
    return perf_counter(), perf_counter()


def prompt(engine: Any, tokens: int, pieces: int, rng: Random) -> list[str]:
    """Random words of at least `tokens` tokens, in pieces of about equal length."""
    words = rng.choices(WORDS, k=tokens)
    while len(engine.framing.content.encode(" ".join(words))) < tokens:
        words += rng.choices(WORDS, k=8)
    text = " ".join(words)
    cuts = [len(text) * place // pieces for place in range(pieces + 1)]
    return [text[begin:end] for begin, end in pairwise(cuts)]


def stream(engine: Any, tokens: int, pieces: int, repeats: int, seed: int, tell: ProgressCallback) -> list[Figures]:
    """Figures of the three arms, which take turns, each over its own words. A warm-up comes first."""
    ways: dict[str, Put] = {STREAMED: _streamed, WHOLE: _announced, BEFORE: _encoded}
    taken: dict[str, list[dict[str, float]]] = {arm: [] for arm in ARMS}

    async def measure() -> None:
        async with Choreographer(engine) as choreographer:
            for number in range(repeats + 1):
                for arm in turns(ARMS, number):
                    reader = Reader(ways[arm], prompt(engine, tokens, pieces, Random(f"{seed}/{number}/{arm}")))
                    await Game(choreographer, config=RunConfig(max_tokens=1)).play(reader)
                    taken[arm].append(reader.times)
                tell("repeats", number, repeats)

    anyio.run(measure)
    subject = f"{tokens} tokens in {pieces} pieces"
    return [Figures.of(subject, arm, taken[arm][1:]) for arm in ARMS]


def sentence(result: Result) -> str:
    """The conclusions from a result, for the page on streams."""
    [subject] = result.subjects
    times = {
        (arm, what): f"{result.spread(subject, arm, what).middle * 1000:.0f} ms"
        for arm in ARMS
        for what in (CLOSE, PIECE)
    }
    whole, before = times[WHOLE, PIECE], times[BEFORE, CLOSE]
    where = f"{result.model} on a {result.device.upper()}, {subject}"
    return (
        f"With {where}, the first token came {times[STREAMED, CLOSE]} after the close and {times[STREAMED, PIECE]} "
        f"after the last piece was handed over. It came {whole} after the last piece if the whole text was announced "
        f"at that moment, and {before} after the close if all of it had been encoded before (medians of "
        f"{result.repeats}, in turns; `python -m tools.bench stream`)."
    )
