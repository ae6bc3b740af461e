"""Agents in lockstep: what one sees depends on the number of messages of the others, not on their lengths."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest

from agentcho import Agent, Choreographer, Engine, Game, Limits, Metadata, RunConfig, View
from agentcho.events import Ended, Event
from agentcho.testing import FakeEngine

from .stage import Play, Scripted, Talker, game, spoken, talker

Seen = list[tuple[str, ...]]
LENGTHS = (1, 2, 3, 5, 8, 11)


class Doing(Agent):
    """Runs a function, and records what its views are shown."""

    audience = "everyone"

    def __init__(self, name: str, run: Callable[[Agent], Awaitable[None]], seen: Seen | None = None) -> None:
        super().__init__(name)
        self._run, self.seen = run, [] if seen is None else seen

    async def run(self) -> None:
        await self._run(self)

    def view(self, readable: Sequence[Metadata]) -> View:
        """Records the readable messages."""
        self.seen.append(tuple(m.id for m in readable))
        return super().view(readable)


def plans(length: int) -> Callable[[Agent], Awaitable[None]]:
    """A private plan of `length` tokens, and then the same public words."""

    async def run(agent: Agent) -> None:
        await agent.think(max_tokens=length)
        await agent.tell("I am ready.")
        await agent.say(max_tokens=2)

    return run


def talks(times: int, length: int = 2) -> Callable[[Agent], Awaitable[None]]:
    """Speaks `times` times."""

    async def run(agent: Agent) -> None:
        for _ in range(times):
            await agent.say(max_tokens=length)

    return run


def observed(play: Play, length: int, lockstep: bool) -> tuple[Seen, tuple[str, ...]]:
    """What Bob is shown at each of his messages, beside a plan of that length, and all that he can read at the end."""
    seen: Seen = []

    async def script(game: Game) -> list[str]:
        cast = [game.cast(Doing("alice", plans(length))), game.cast(Doing("bob", talks(5), seen))]
        await (game.lockstep if lockstep else game.play_agents)(*cast)
        return [m.id for m in game.said if m.audience.includes("bob")]

    _, [over] = game(play, script, talker(12))
    assert over.outcome is not None
    return seen, tuple(over.outcome["value"])


def test_what_an_agent_sees_is_the_same_whatever_the_length_of_a_secret(play: Play) -> None:
    [first, *others] = [observed(play, length, lockstep=True) for length in LENGTHS]
    assert others == [first] * len(others)
    shown, out = first
    assert out == ("bob.0", "alice.1", "alice.2", "bob.1", "bob.2", "bob.3", "bob.4")
    assert shown == [(), ("bob.0",), ("bob.0", "alice.1", "alice.2", "bob.1"), out[:5], out[:6]]
    free = [observed(play, length, lockstep=False) for length in LENGTHS]
    assert any(each != free[0] for each in free)


def test_nobody_waits_for_who_has_ended_or_waits_for_something_else(play: Play) -> None:
    async def script(game: Game) -> list[str]:
        ready = anyio.Event()

        async def waits(agent: Agent) -> None:
            await ready.wait()
            await agent.say(max_tokens=1)

        async def wakes(agent: Agent) -> None:
            await agent.say(max_tokens=4)
            await agent.say(max_tokens=1)
            ready.set()
            await agent.say(max_tokens=1)

        runs = {"alice": waits, "bob": wakes, "carol": talks(1)}
        await game.lockstep(*(game.cast(Doing(name, run)) for name, run in runs.items()))
        return [m.id for m in game.said]

    _, [over] = game(play, script, talker(9))
    assert over.outcome == {"value": ["bob.0", "carol.0", "bob.1", "alice.0", "bob.2"]}


def test_who_gives_up_waiting_for_the_others_is_not_waited_for(play: Play) -> None:
    async def script(game: Game) -> list[str]:
        done, scope = anyio.Event(), anyio.CancelScope()

        async def hasty(agent: Agent) -> None:
            with scope:
                await agent.say(max_tokens=1)
            assert scope.cancelled_caught
            await done.wait()

        async def slow(agent: Agent) -> None:
            async with agent.stream(max_tokens=6) as pieces:
                number = 0
                async for _ in pieces:
                    number += 1
                    if number == 4:  # she has spoken, and waits for him
                        scope.cancel()
            await agent.say(max_tokens=4)
            done.set()

        await game.lockstep(game.cast(Doing("alice", hasty)), game.cast(Doing("bob", slow)))
        return [m.id for m in game.said]

    _, [over] = game(play, script, talker(9))
    assert over.outcome == {"value": ["alice.0", "bob.0", "bob.1"]}


def test_rounds_and_lockstep_within(play: Play) -> None:
    def script(length: int) -> Callable[[Game], Awaitable[list[str]]]:
        async def both(game: Game) -> list[str]:
            dan, eve = game.cast(Doing("dan", talks(2, length))), game.cast(Doing("eve", talks(1)))

            async def leads(agent: Agent) -> None:
                await game.together(agent.say(max_tokens=length), eve.think(max_tokens=1))
                await game.lockstep(dan, eve)
                await agent.say(max_tokens=1)

            cast = [game.cast(Doing("alice", leads)), game.cast(Doing("bob", talks(3)))]
            await game.lockstep(*cast)
            await game.together(cast[0].say(), cast[1].say())
            return [m.id for m in game.said]

        return both

    outcomes = [game(play, script(length), talker(12))[1][0].outcome for length in LENGTHS]
    order = ["alice.0", "eve.0", "bob.0", "dan.0", "eve.1", "dan.1", "bob.1", "alice.1", "bob.2", "alice.2", "bob.3"]
    assert outcomes == [{"value": order}] * len(LENGTHS)


@pytest.mark.parametrize("length", LENGTHS)
def test_an_error_comes_when_the_others_have_said_what_they_were_at(play: Play, length: int) -> None:
    async def script(game: Game) -> list[str]:
        async def fails(agent: Agent) -> None:
            await agent.say(max_tokens=1)
            await agent.think(max_tokens=length)
            raise LookupError("mine")

        async def stops(agent: Agent) -> None:
            await agent.say(max_tokens=3)
            await agent.say(max_tokens=5)
            await agent.say(max_tokens=length)

        cast = [game.cast(Doing("alice", stops)), game.cast(Doing("bob", fails)), game.cast(Doing("carol", fails))]
        with pytest.raises(LookupError, match="mine"):
            await game.lockstep(*cast)
        await cast[0].say(max_tokens=1)
        return [m.id for m in game.said if m.audience.includes("alice")]

    _, [over] = game(play, script, talker(12))
    assert over.outcome is not None
    assert over.outcome["value"][:4] == ["alice.0", "bob.0", "carol.0", "alice.1"]


def test_a_limit_ends_the_game(play: Play) -> None:
    async def script(game: Game) -> None:
        await game.lockstep(game.cast(Doing("alice", talks(9))), game.cast(Doing("bob", talks(2))))

    entries, [over] = game(play, script, talker(9), limits=Limits(agent_messages=3))
    assert over.ended == "limit: alice reached 3 messages"
    assert [m.id for m in spoken(entries)].count("alice.3") == 0


def test_it_can_be_cancelled(play: Play) -> None:
    async def script(game: Game) -> list[str]:
        cast = [game.cast(Doing("alice", talks(2))), game.cast(Talker, "bob")]
        with anyio.CancelScope() as scope:

            async def stops(agent: Agent) -> None:
                await agent.say(max_tokens=3)
                scope.cancel()
                await anyio.sleep_forever()

            await game.lockstep(cast[0], game.cast(Doing("carol", stops)))
        await cast[1].say(max_tokens=1)
        return [m.id for m in game.said]

    _, [over] = game(play, script, talker(9))
    assert over.outcome == {"value": ["alice.0", "carol.0", "bob.0"]}


def test_no_agents_are_soon_done(play: Play) -> None:
    async def script(game: Game) -> None:
        await game.lockstep()

    _, [over] = game(play, script, FakeEngine())
    assert over.ended is None


@pytest.mark.parametrize("games", [1, 3])
def test_games_side_by_side_are_each_in_step(play: Play, games: int) -> None:
    async def script(game: Game) -> list[str]:
        cast = [game.cast(Doing("alice", plans(1 + game.index))), game.cast(Doing("bob", talks(3)))]
        await game.lockstep(*cast)
        return [m.id for m in game.said]

    _, overs = game(play, script, talker(9), games=games)
    value = ["alice.0", "bob.0", "alice.1", "alice.2", "bob.1", "bob.2"]
    assert [over.outcome for over in overs] == [{"value": value}] * games


def test_words_of_a_model_are_the_same_to_the_bit(play: Play, tiny: Engine) -> None:
    """Bob samples with random weights, in the deterministic profile, beside plans of different lengths."""

    def words(length: int, lockstep: bool) -> list[tuple[int, ...]]:
        async def plan(agent: Agent) -> None:
            await agent.think(max_tokens=length)
            await agent.tell("I am ready.")

        events: list[Event] = []

        async def script(game: Game) -> None:
            cast = [game.cast(Doing("alice", plan)), game.cast(Doing("bob", talks(4, 4)))]
            await (game.lockstep if lockstep else game.play_agents)(*cast)

        async def work() -> Any:
            config = RunConfig(deterministic=True, temperature=1.0)
            async with Choreographer(tiny, config.policy) as c:
                await Game(c, 0, 7, config, sink=events.append).play(Scripted(script))

        play(work)
        said = [event.entry.message for event in events if isinstance(event, Ended)]
        return [m.tokens for m in said if m.author == "bob"]

    assert words(1, True) == words(12, True)
    assert words(1, False) != words(12, False)
