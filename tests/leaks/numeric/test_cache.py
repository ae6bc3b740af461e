"""Paired caches: stored keys are found again by readers of the same class, in the same game or another, and by no other
class, whatever the words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import torch

from agentcho import Agent, Choreographer, Engine, Game, Prefill, RunConfig, Scenario

from .double import Double

TEXT = "the fox and the sea"


class Listener(Agent):
    """Says one word."""

    role = "listener"


class Parts(Scenario):
    """Plays a function."""

    name = "parts"

    class Outcome(Scenario.Outcome):
        """Empty."""

    def __init__(self, part: Callable[[Game], Awaitable[None]]) -> None:
        super().__init__()
        self._part = part

    async def play(self, game: Game) -> Scenario.Outcome:
        """Call the function once."""
        await self._part(game)
        return self.Outcome()


def fed(engine: Engine, first: tuple[str, str], second: tuple[str, str], two_games: bool = False) -> tuple[int, int]:
    """Encoded tokens of two turns, one after another, each given as (listener, audience of the announcement, or "same"
    for the first one's). With `two_games`, the second is in another game while the first still holds its encodings."""
    double, counts = Double(engine, "nobody"), list[int]()
    config = RunConfig(leakage="enforce", max_tokens=1, default_prompt="drop")

    async def hear(game: Game, who: str, to: str) -> None:
        listener = game.agents.get(who) or game.cast(Listener, who)
        if to == "pair":
            await game.announce(TEXT, to=("bob", "carol"))
        elif to != "same":
            await game.announce(TEXT, to=to)
        before = double.encoded
        await listener.say(temperature=0)
        counts.append(double.encoded - before)

    async def work() -> None:
        async with Choreographer(double, config.policy) as choreographer:

            async def whole(game: Game) -> None:
                for name in ("bob", "carol"):
                    game.cast(Listener, name)
                await hear(game, *first)
                if not two_games:
                    await hear(game, *second)
                    return
                other = Game(choreographer, 1, 0, config)
                await other.play(Parts(lambda g: _cast_and(hear, g, second)))

            await Game(choreographer, 0, 0, config).play(Parts(whole))

    anyio.run(work)
    assert len(counts) == 2
    return counts[0], counts[1]


async def _cast_and(hear: Callable[[Game, str, str], Awaitable[None]], game: Game, second: tuple[str, str]) -> None:
    for name in ("bob", "carol"):
        game.cast(Listener, name)
    await hear(game, *second)


def length(engine: Engine) -> int:
    """The number of tokens of the announcement."""
    framing = engine.framing
    return len(framing.opening("user", None)) + len(framing.content.encode(TEXT)) + len(framing.closing("user"))


def test_a_second_reader_of_the_same_class_has_nothing_to_encode(llama_of: Callable[[int], Engine]) -> None:
    engine = llama_of(6)
    first, second = fed(engine, ("bob", "everyone"), ("carol", "same"))
    assert first - second == length(engine)


def test_another_game_finds_what_its_class_has(llama_of: Callable[[int], Engine]) -> None:
    engine = llama_of(6)
    for to in ("everyone", "pair", "bob"):
        first, second = fed(engine, ("bob", to), ("bob", to), two_games=True)
        assert first - second == length(engine), to


def test_no_other_class_finds_it(llama_of: Callable[[int], Engine]) -> None:
    engine = llama_of(6)
    pairs = [(a, b) for a in ("everyone", "pair", "bob") for b in ("everyone", "pair", "bob") if a != b]
    for one, other in pairs:
        first, second = fed(engine, ("bob", one), ("bob", other), two_games=True)
        assert first == second, (one, other)


def test_the_same_words_over_other_parents_or_at_other_places_are_other_encodings(
    llama_of: Callable[[int], Engine],
) -> None:
    engine = llama_of(6)
    red, oak = engine.prefill("red"), engine.prefill("oak")
    length = len(engine.message(red).tokens)
    assert length == len(engine.message(oak).tokens)
    calls = [Prefill("so", [red]), Prefill("so", [oak]), Prefill("so", [red], offsets=[3], new_offset=1 + length)]
    ids = engine.prefill(calls)
    first, *rest = [torch.cat([values for _, values in engine.cached(id)]) for id in ids]
    assert all(float((first - other).abs().max()) > 1e-3 for other in rest)
    engine.release([red, oak, *ids])
