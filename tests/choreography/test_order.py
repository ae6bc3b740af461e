"""What the order of messages reveals about private ones, in played games: concurrent agents, lockstep, rounds, and
awaits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest

from agentcho import Agent, Game, View
from agentcho.audit import order
from agentcho.audit.order import Raced

from .stage import Play, Talker, game, talker

Script = Callable[[Game], Awaitable[Any]]
NAMES = ("alice", "bob", "carol")


class Quiet(Agent):
    """Speaks to everyone unless told otherwise."""

    audience = "everyone"

    def __init__(self, name: str, run: Callable[[Agent], Awaitable[None]]) -> None:
        super().__init__(name)
        self._run = run

    async def run(self) -> None:
        await self._run(self)


async def plans(agent: Agent) -> None:
    """A private plan, and then the same public words regardless of it."""
    await agent.think(max_tokens=5)
    await agent.tell("I am ready.")


async def talks(agent: Agent) -> None:
    """Speaks repeatedly."""
    for _ in range(4):
        await agent.say(max_tokens=2)


def found(play: Play, script: Script, readers: Sequence[str] = NAMES) -> list[Raced]:
    """What the order of messages of a played game reveals."""
    entries, _ = game(play, script, talker(9))
    assert order.known(entries)
    return list(order.raced(entries, readers))


def of(told: Sequence[Raced]) -> set[tuple[str, str, str]]:
    """The (reader, owner, message) of each leak by order."""
    return {(each.reader, each.owner, each.message) for each in told}


# -- concurrent agents -------------------------------------------------------------------------------------


def test_the_place_of_what_is_said_after_a_plan_tells_how_long_the_plan_was(play: Play) -> None:
    async def script(game: Game) -> None:
        await game.play_agents(game.cast(Quiet("alice", plans)), game.cast(Quiet("bob", talks)))

    assert found(play, script) == [
        Raced("bob", "alice", "alice.1", ("alice.0",)),
        Raced("carol", "alice", "alice.1", ("alice.0",)),
    ]


def test_in_lockstep_it_tells_nothing(play: Play) -> None:
    async def script(game: Game) -> None:
        await game.announce("Begin.")
        await game.lockstep(game.cast(Quiet("alice", plans)), game.cast(Quiet("bob", talks)))
        await game.announce("It is over.")

    assert found(play, script) == []


def test_who_may_read_the_plan_is_told_nothing_by_the_order(play: Play) -> None:
    async def tells(agent: Agent) -> None:
        await agent.say(to=["bob"], max_tokens=5)
        await agent.tell("I am ready.")

    async def script(game: Game) -> None:
        bob = game.cast(Quiet("bob", talks))
        game.cast(Talker, "carol")
        await game.play_agents(game.cast(Quiet("alice", tells)), bob)

    assert of(found(play, script)) == {("carol", "alice", "alice.1")}


def test_both_messages_of_a_race_tell_of_what_came_before_them(play: Play) -> None:
    async def script(game: Game) -> None:
        await game.play_agents(game.cast(Quiet("alice", plans)), game.cast(Quiet("bob", plans)))

    assert of(found(play, script)) == {
        ("alice", "bob", "bob.1"),
        ("bob", "alice", "alice.1"),
        ("carol", "alice", "alice.1"),
        ("carol", "bob", "bob.1"),
    }


def test_what_all_had_waited_for_tells_nothing(play: Play) -> None:
    """The plans of the round end before the agents begin."""

    async def script(game: Game) -> None:
        alice, bob = game.cast(Quiet("alice", talks)), game.cast(Quiet("bob", talks))
        await game.together(alice.think(), bob.think())
        await game.play_agents(alice, bob)

    assert found(play, script) == []


def test_what_only_one_of_two_had_waited_for_tells(play: Play) -> None:
    async def script(game: Game) -> None:
        alice, bob, carol = (game.cast(Talker, name) for name in NAMES)

        async def pair() -> None:
            await game.together(alice.think(max_tokens=3), bob.think(max_tokens=2))
            await alice.say(max_tokens=2)

        async with anyio.create_task_group() as group:
            group.start_soon(pair)
            group.start_soon(lambda: carol.say(max_tokens=6))

    assert of(found(play, script)) == {
        ("alice", "bob", "alice.0"),
        ("alice", "bob", "alice.1"),
        ("bob", "alice", "bob.0"),
        ("bob", "alice", "alice.1"),
        ("carol", "alice", "alice.1"),
        ("carol", "bob", "alice.1"),
    }


# -- what fixes the order ----------------------------------------------------------------------------------


def test_one_after_the_other(play: Play) -> None:
    async def script(game: Game) -> None:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        for _ in range(2):
            await alice.think("Well?")
            await alice.say()
            await bob.say()

    assert found(play, script) == []


def test_rounds_and_rounds_within(play: Play) -> None:
    async def script(game: Game) -> None:
        alice, bob, carol = (game.cast(Talker, name) for name in NAMES)

        async def within() -> None:
            await alice.think()
            await game.together(alice.say(), bob.think())
            await alice.say()

        for _ in range(2):
            await game.together(within(), carol.say())
        await bob.say()

    assert found(play, script) == []


def test_events_by_which_tasks_wait_for_each_other(play: Play) -> None:
    async def script(game: Game) -> None:
        go, gone = anyio.Event(), anyio.Event()

        async def first(agent: Agent) -> None:
            await plans(agent)
            go.set()
            await gone.wait()
            await agent.say(max_tokens=2)

        async def second(agent: Agent) -> None:
            await go.wait()
            await agent.think(max_tokens=4)
            await agent.say(max_tokens=2)
            gone.set()

        await game.play_agents(game.cast(Quiet("alice", first)), game.cast(Quiet("bob", second)))

    assert found(play, script) == []


def test_tasks_of_the_code_itself_and_streams(play: Play) -> None:
    async def script(game: Game) -> None:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        for _ in range(2):
            async with alice.stream(to=()) as pieces:
                async for _ in pieces:
                    pass
            await alice.say()
            async with anyio.create_task_group() as group:
                group.start_soon(alice.think)
                group.start_soon(bob.think)
            await bob.say()

    assert found(play, script) == []


def handed_on(seen: Callable[[Game, str], View | None], begin: bool = False) -> Script:
    """Alice thinks and speaks, and hands the id of what she said to Bob, who then speaks over what `seen` returns."""

    async def three(game: Game) -> None:
        send, receive = anyio.create_memory_object_stream[str](1)
        if begin:
            await game.announce("Begin.")
            assert len(game.said) == 1

        async def first(agent: Agent) -> None:
            await agent.think(max_tokens=3)
            await send.send(await agent.tell("I am ready."))

        async def second(agent: Agent) -> None:
            await agent.say(max_tokens=2, view=seen(game, await receive.receive()))

        async def beside(agent: Agent) -> None:
            await agent.think(max_tokens=3)

        runs = zip(NAMES, (first, second, beside), strict=True)
        await game.play_agents(*(game.cast(Quiet(name, run)) for name, run in runs))
        receive.close()
        send.close()

    return three


def test_reading_what_is_named(play: Play) -> None:
    """Naming a message implies having waited for it; reading whatever is available does not."""
    assert found(play, handed_on(lambda game, id: View.of([id])), ["bob"]) == []
    assert of(found(play, handed_on(lambda game, id: None), ["bob"])) == {("bob", "alice", "alice.1")}


@pytest.mark.parametrize("how", ["counted before", "found by its id"])
def test_to_have_waited_for_a_message_counts_beside_what_a_list_showed(play: Play, how: str) -> None:
    def seen(game: Game, id: str) -> View:
        assert how == "counted before" or game.said.find(id)
        return View.of(["scenario.0", id])

    assert found(play, handed_on(seen, begin=True), ["bob"]) == []


def test_to_name_what_a_list_showed_is_not_to_have_waited_for_it(play: Play) -> None:
    async def script(game: Game) -> None:
        alice, bob, _ = (game.cast(Talker, name) for name in NAMES)

        async def speaks(agent: Agent, tokens: int) -> None:
            await agent.think(max_tokens=tokens)
            await agent.say(to="everyone", max_tokens=2, view=View.open_to(game.said, "everyone"))

        async with anyio.create_task_group() as group:
            group.start_soon(speaks, alice, 2)
            group.start_soon(speaks, bob, 6)

    told = {(each.reader, each.owner) for each in found(play, script)}
    assert told == {("alice", "bob"), ("bob", "alice"), ("carol", "alice"), ("carol", "bob")}


# -- races run by the code ---------------------------------------------------------------------------------


def test_that_a_message_won_a_race_tells_of_the_loser(play: Play) -> None:
    async def script(game: Game) -> None:
        alice, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await game.first(alice.think(max_tokens=9), bob.say(max_tokens=2))

    assert of(found(play, script)) == {("bob", "alice", "bob.0"), ("carol", "alice", "bob.0")}


def test_who_has_slept_while_nothing_happened_has_waited_for_nobody(play: Play) -> None:
    async def sleeps(agent: Agent) -> None:
        await anyio.sleep(0.05)
        await agent.say(max_tokens=2)

    async def script(game: Game) -> None:
        await game.play_agents(game.cast(Quiet("alice", plans)), game.cast(Quiet("bob", sleeps)))

    assert {(each.reader, each.owner) for each in found(play, script)} >= {("carol", "alice")}
