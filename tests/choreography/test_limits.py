"""Limits end a game with a recorded outcome: no exception, no empty message, nothing left behind."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import anyio.lowlevel
import pytest

from agentcho import Agent, Decode, Game, Limits
from agentcho.testing import FakeEngine

from .stage import Clock, Interrupted, Play, Talker, game, spoken, talker

LIMITS = {
    "agent_messages": Limits(agent_messages=2),
    "game_messages": Limits(game_messages=2),
    "agent_tokens": Limits(agent_tokens=7),
    "game_tokens": Limits(game_tokens=7),
    "game_seconds": Limits(game_seconds=1e-9),
    "agent_seconds": Limits(agent_seconds=1e-9),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_ends_a_game_as_an_outcome(play: Play, limit: str) -> None:
    async def script(game: Game) -> None:
        a = game.cast(Talker, "alice")
        for _ in range(100):
            await a.say()

    entries, [over] = game(play, script, talker(4), limits=LIMITS[limit])
    assert over.outcome is None
    assert over.score == {}
    assert over.ended is not None
    assert over.ended.startswith("limit: alice" if limit.startswith("agent") else "limit: the game")
    assert over.ended.endswith(limit.split("_")[1])
    assert all(m.text for m in spoken(entries))
    assert len(spoken(entries)) == (0 if "seconds" in limit else 2)
    if "tokens" in limit:
        sampled = [m.sampled or (0, 0) for m in spoken(entries)]
        assert sum(stop - start for start, stop in sampled) == 7


@pytest.mark.parametrize(("limits", "bob"), [(Limits(agent_messages=2), 1), (Limits(game_messages=2), 1)])
def test_an_agents_limit_counts_its_own_and_the_games_all(play: Play, limits: Limits, bob: int) -> None:
    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await b.say()
        for _ in range(9):
            await a.say()

    entries, _ = game(play, script, limits=limits)
    authors = [m.author for m in spoken(entries)]
    assert authors == ["bob", *["alice"] * (2 if limits.agent_messages else 1)]


def test_what_is_not_reached_ends_nothing(play: Play) -> None:
    limits = Limits(agent_messages=1, agent_tokens=99, game_messages=2, game_tokens=99, game_seconds=99)

    async def script(game: Game) -> str:
        await game.cast(Talker, "alice").say()
        await game.cast(Talker, "bob").say()
        return "done"

    _, [over] = game(play, script, talker(4), limits=limits)
    assert (over.outcome, over.ended) == ({"value": "done"}, None)


def test_a_choice_is_whole_or_not_said(play: Play) -> None:
    async def script(game: Game) -> None:
        a = game.cast(Talker, "alice")
        for _ in range(9):
            await a.ask("which?", ["straight on for ever", "back again and again"])

    entries, [over] = game(play, script, limits=Limits(agent_tokens=6))
    assert [len(m.text.split()) for m in spoken(entries)] == [4, 4]
    assert over.ended == "limit: alice reached 6 tokens"


def test_tokens_that_are_left_end_what_may_not_end_before(play: Play) -> None:
    async def script(game: Game) -> None:
        a = game.cast(Talker, "alice")
        for _ in range(9):
            await a.say(min_tokens=4)

    entries, [over] = game(play, script, talker(2), limits=Limits(agent_tokens=6))
    assert [m.text.count("word") for m in spoken(entries)] == [4, 2]
    assert over.ended == "limit: alice reached 6 tokens"


def test_a_limit_of_one_game_leaves_the_others_alone(play: Play) -> None:
    async def script(game: Game) -> str:
        a = game.cast(Talker, "alice")
        for _ in range(2 if game.index else 9):
            await a.say()
        return "done"

    _, overs = game(play, script, limits=Limits(agent_messages=3), games=3)
    assert sorted((over.game, over.ended is None) for over in overs) == [(0, False), (1, True), (2, True)]


Meeting = Callable[[Game, Agent, Agent], Awaitable[object]]


async def in_a_round(game: Game, a: Agent, b: Agent) -> None:
    """Bob is speaking when Alice's limit is reached."""

    async def thrice() -> None:
        for _ in range(3):
            await a.say(max_tokens=1)

    await game.together(thrice(), b.say())


async def in_a_stream(game: Game, a: Agent, b: Agent) -> None:
    """Alice's limit is reached while Bob is streamed."""
    async with b.stream() as pieces:
        async for _ in pieces:
            await a.say(max_tokens=1)


async def by_a_stream(game: Game, a: Agent, b: Agent) -> None:
    """The stream itself reaches the limit."""
    for _ in range(3):
        async with a.stream() as pieces:
            [piece async for piece in pieces]


@pytest.mark.parametrize("meeting", [in_a_round, in_a_stream, by_a_stream])
def test_a_limit_is_an_outcome_wherever_it_is_reached(play: Play, meeting: Meeting) -> None:
    async def script(game: Game) -> None:
        await meeting(game, game.cast(Talker, "alice"), game.cast(Talker, "bob"))

    entries, [over] = game(play, script, talker(12), limits=Limits(agent_messages=2))
    assert over.ended == "limit: alice reached 2 messages"
    assert [m.author for m in spoken(entries)].count("alice") == 2


@pytest.mark.parametrize("limits", [Limits(game_seconds=60), Limits(agent_seconds=60)])
@pytest.mark.parametrize(("step", "whole"), [(1, 0), (2, 0), (6, 0), (7, 1), (9, 1)])
def test_time_that_runs_out_under_way_drops_the_message_and_keeps_the_others(
    clock: Clock, limits: Limits, step: int, whole: int
) -> None:
    """A message of four words takes six steps."""
    engine = Interrupted(4)
    engine.during[step] = lambda: clock.jump(61)

    async def script(game: Game) -> None:
        a = game.cast(Talker, "alice", system="Be quick.")
        for _ in range(9):
            await a.say()

    entries, [over] = game(clock.run, script, engine, limits=limits)
    assert over.ended == (
        "limit: the game reached 60 seconds" if limits.game_seconds else "limit: alice reached 60 seconds"
    )
    assert over.seconds >= 61
    assert len(spoken(entries)) == whole
    assert entries[0].message.text == "Be quick."


@pytest.mark.parametrize("verb", ["tell", "release"])
def test_an_agent_that_tells_and_samples_nothing_has_an_end_of_its_seconds_too(clock: Clock, verb: str) -> None:
    async def script(game: Game) -> None:
        a = game.cast(Talker, "alice")
        said = await a.say()
        clock.jump(61)
        for _ in range(3):
            with suppress(Exception):
                await (a.tell("Hello") if verb == "tell" else a.release(said))

    _, [over] = game(clock.run, script, Interrupted(4), limits=Limits(agent_seconds=60))
    assert over.ended == "limit: alice reached 60 seconds"


def test_time_that_passes_within_the_limit_ends_nothing(clock: Clock) -> None:
    engine = Interrupted(4)
    engine.during[2] = lambda: clock.jump(59)

    async def script(game: Game) -> None:
        await game.cast(Talker, "alice").say()

    _, [over] = game(clock.run, script, engine, limits=Limits(game_seconds=60, agent_seconds=60))
    assert over.ended is None


def test_max_tokens_of_a_call_is_never_raised_by_what_is_left(play: Play) -> None:
    asked: list[int] = []

    def reply(call: Decode, prompt: str) -> str:
        asked.append(call.sampling.max_tokens)
        return "a b c"

    async def script(game: Game) -> None:
        a = game.cast(Talker, "alice")
        await a.say()
        await a.say(max_tokens=2)
        await a.say()

    game(play, script, FakeEngine(reply), limits=Limits(agent_tokens=14))
    assert asked == [12, 2, 9]


def test_what_an_agent_may_still_say_does_not_depend_on_what_others_have_said(play: Play) -> None:
    """Otherwise it would reveal how much they say in private."""
    asked: list[tuple[str | None, int]] = []

    def reply(call: Decode, prompt: str) -> str:
        asked.append((call.name, call.sampling.max_tokens))
        return "a b c"

    async def script(game: Game) -> None:
        a, b = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        await a.say()
        await b.think()
        await a.say()

    game(play, script, FakeEngine(reply), limits=Limits(agent_tokens=14))
    assert asked == [("alice", 12), ("bob", 12), ("alice", 11)]


def test_an_agents_time_goes_on_between_its_turns(clock: Clock) -> None:
    """Two messages of six steps; neither takes as long as the limit."""
    engine = Interrupted(4)
    for step in (2, 8):
        engine.during[step] = lambda: clock.jump(40)

    async def script(game: Game) -> None:
        a = game.cast(Talker, "alice")
        for _ in range(2):
            await a.say()

    entries, [over] = game(clock.run, script, engine, limits=Limits(agent_seconds=60))
    assert over.ended == "limit: alice reached 60 seconds"
    assert len(spoken(entries)) == 1


MANY = 20_000
"""Attempts after which a loop gives up if nothing ends it."""
Broken = Callable[[Game, Agent], Awaitable[object]]


async def written_late(game: Game) -> None:
    async with game.streamed() as page:
        pass
    await page.write("late")


async def heard_by_nobody(ann: Agent) -> None:
    async with ann.stream(to="nobody"):
        pass


async def streamed_to_nobody(game: Game) -> None:
    async with game.streamed(to="nobody"):
        pass


IDLE: dict[str, Broken] = {
    "say": lambda game, ann: ann.say(to="nobody"),
    "say with tools": lambda game, ann: ann.say(tools=[cast(Any, 5)]),
    "think": lambda game, ann: ann.think(prompt=cast(Any, 5)),
    "choose": lambda game, ann: ann.choose(cast(Any, 5)),
    "ask": lambda game, ann: ann.ask("which?", []),
    "answer": lambda game, ann: ann.answer(cast(Any, int)),
    "tell": lambda game, ann: ann.tell("a word", to="nobody"),
    "told": lambda game, ann: ann.tell("a word"),
    "release": lambda game, ann: ann.release(cast(Any, 5)),
    "stream": lambda game, ann: heard_by_nobody(ann),
    "without a seat": lambda game, ann: Agent("eve").say(),
    "announce": lambda game, ann: game.announce("a word", to="nobody"),
    "announced": lambda game, ann: game.announce("a word"),
    "streamed": lambda game, ann: streamed_to_nobody(game),
    "written": lambda game, ann: written_late(game),
    "together": lambda game, ann: game.together(),
    "first": lambda game, ann: game.first(),
    "agents": lambda game, ann: game.play_agents(),
}
"""Verbs that fail or finish before they wait for anything."""


@pytest.mark.parametrize("verb", IDLE)
def test_time_runs_out_and_other_games_go_on_while_code_tries_again_for_ever(clock: Clock, verb: str) -> None:
    async def script(game: Game) -> str:
        ann = game.cast(Talker, "ann")
        if game.index:
            if verb == "say":
                await ann.say()
            await anyio.lowlevel.checkpoint()
            clock.jump(61)
            return "done"
        for _ in range(50 * MANY):  # the engine's thread may be slow on a busy machine
            try:
                await IDLE[verb](game, ann)
            except Exception:
                continue
        return "nothing ended it"

    _, overs = game(clock.run, script, limits=Limits(game_seconds=60), games=2)
    assert {over.game: over.ended for over in overs} == {0: "limit: the game reached 60 seconds", 1: None}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("after", ["again", "other", "returns"])
def test_a_limit_ends_a_game_whose_code_catches_every_error(play: Play, limit: str, after: str) -> None:
    async def script(game: Game) -> str:
        ann, bob = game.cast(Talker, "alice"), game.cast(Talker, "bob")
        if game.index:
            return "done"
        for _ in range(MANY):
            try:
                await ann.say()
            except Exception as error:
                if after == "returns":
                    return "caught"
                if after == "other":
                    raise RuntimeError("the agent failed") from error
                await bob.tell("trying again")
        raise RuntimeError("nothing ended it")

    entries, overs = game(play, script, talker(4), limits=LIMITS[limit], games=2)
    ended = {over.game: over.ended for over in overs}
    assert ended[1] is None or limit == "game_seconds"  # its time runs out as well
    assert ended[0] is not None
    assert ended[0].startswith("limit: alice" if limit.startswith("agent") else "limit: the game")
    assert [over.outcome for over in overs if over.game == 0] == [None]
    assert len(spoken(entries)) == (0 if "seconds" in limit else 2)
