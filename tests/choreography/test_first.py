"""Races: the first move that ends wins, the others are cancelled, and everything is recorded."""

from __future__ import annotations

import anyio
import pytest

from agentcho import Agent, Game
from agentcho.errors import ScenarioError
from agentcho.records.transcript import TranscriptEntry

from .stage import Play, Talker, game, spoken, talker


def cast(game: Game, *names: str) -> list[Agent]:
    """Talkers with these names."""
    return [game.cast(Talker, name) for name in names]


def unfinished(entries: list[TranscriptEntry]) -> dict[str, int]:
    """The number of sampled tokens of each cancelled message. (A message ends with the step that feeds its closing.)"""
    return {
        entry.message.id: entry.message.sampled[1] - entry.message.sampled[0]
        for entry in entries
        if entry.ended == "cancelled" and entry.message.sampled
    }


def test_the_first_that_ends_wins_and_the_others_are_cancelled(play: Play) -> None:
    async def script(game: Game) -> list[str]:
        a, b, c = cast(game, "ann", "bob", "carol")
        won = await game.first(a.say(max_tokens=9), b.say(max_tokens=3), c.say(max_tokens=7))
        await c.say(max_tokens=1)
        return [won.id, *(m.id for m in game.said)]

    entries, [over] = game(play, script, talker(9))
    assert over.outcome == {"value": ["bob.0", "bob.0", "carol.1"]}
    assert over.raced
    assert unfinished(entries) == {"ann.0": 4, "carol.0": 4}
    assert {m.id: m.parents for m in spoken(entries)}["carol.1"] == ("bob.0",)


@pytest.mark.parametrize("way", ["first", "together"])
def test_what_is_no_move_is_refused_before_anything_runs(play: Play, way: str) -> None:
    async def script(game: Game) -> None:
        a, b = cast(game, "ann", "bob")
        with pytest.raises(ScenarioError, match=r"^a value of type list is not a move; .*; pass the moves one by"):
            await getattr(game, way)([])
        with pytest.raises(ScenarioError, match=r"is not a move; a move is a coroutine, such as ann\.say\(\)$"):
            await getattr(game, way)(a.say(), b)

    entries, _ = game(play, script, talker(9))
    assert not spoken(entries)


@pytest.mark.parametrize("first", [0, 1])
def test_of_those_that_end_in_one_step_the_first_given_wins(play: Play, first: int) -> None:
    async def script(game: Game) -> list[str]:
        pair = cast(game, "ann", "bob")
        one, other = pair[first], pair[1 - first]
        won = await game.first(one.say(max_tokens=4), other.say(max_tokens=4))
        return [won.author, *(m.id for m in game.said)]

    entries, [over] = game(play, script, talker(9))
    names = ["ann", "bob"]
    assert over.outcome == {"value": [names[first], f"{names[first]}.0", f"{names[1 - first]}.0"]}
    assert not unfinished(entries)


def test_what_ends_later_in_the_same_round_of_the_loop_still_counts(play: Play) -> None:
    """When the other move ends, the one given first still needs some rounds of the event loop."""

    async def script(game: Game) -> str:
        a, b = cast(game, "ann", "bob")

        async def slow() -> str:
            await a.say(max_tokens=2)
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            return "slow"

        async def quick() -> str:
            await b.say(max_tokens=2)
            return "quick"

        return str(await game.first(slow(), quick()))

    _, [over] = game(play, script, talker(9))
    assert over.outcome == {"value": "slow"}


def test_code_has_looked_at_all_that_was_said_in_a_race(play: Play) -> None:
    """The winner reveals how long the messages of all moves were, including those of rounds and races within."""

    async def script(game: Game) -> None:
        a, b, c = cast(game, "ann", "bob", "carol")

        async def within() -> None:
            await game.together(b.think(max_tokens=2), c.think(max_tokens=2))
            await b.think(max_tokens=9)

        await game.first(within(), a.think(max_tokens=4))
        await a.say(max_tokens=1)

    entries, _ = game(play, script, talker(9))
    [last] = [entry for entry in entries if entry.message.id == "ann.1"]
    assert last.act.tainted_by == ("ann.0", "bob.0", "bob.1", "carol.0")


def test_a_loser_that_has_said_nothing_is_in_no_line_and_its_race_tells_of_it(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b = cast(game, "ann", "bob")

        async def at_once() -> None:
            return None

        await game.first(a.think(), at_once())
        await b.say(max_tokens=1)

    entries, _ = game(play, script)
    assert [entry.message.id for entry in entries] == ["bob.0"]
    assert entries[0].act.tainted_by == ("ann.0",)  # its length decided the race


def test_an_error_of_the_first_that_ends_is_that_of_the_race(play: Play) -> None:
    async def script(game: Game) -> list[str]:
        a, b = cast(game, "ann", "bob")

        async def breaks() -> None:
            await a.say(max_tokens=2)
            raise LookupError("mine")

        with pytest.raises(LookupError, match="mine"):
            await game.first(breaks(), b.say(max_tokens=9))
        return [m.id for m in game.said]

    entries, [over] = game(play, script, talker(9))
    assert over.outcome == {"value": ["ann.0"]}
    assert unfinished(entries) == {"bob.0": 3}


def test_races_side_by_side_are_decided_one_by_one(play: Play) -> None:
    async def script(game: Game) -> list[str]:
        a, b, c, d = cast(game, "ann", "bob", "carol", "dan")
        races = (
            game.first(a.say(max_tokens=6), b.say(max_tokens=2)),
            game.first(c.say(max_tokens=2), d.say(max_tokens=2)),
        )
        return [message.id for message in await game.together(*races)]

    entries, overs = game(play, script, talker(9), games=3)
    assert [over.outcome for over in overs] == [{"value": ["bob.0", "carol.0"]}] * 3
    assert unfinished(entries) == {"ann.0": 3}


def test_a_race_needs_a_move(play: Play) -> None:
    async def script(game: Game) -> None:
        with pytest.raises(ScenarioError, match="no moves"):
            await game.first()

    game(play, script)


def test_a_race_that_is_cancelled_leaves_nothing(play: Play) -> None:
    async def script(game: Game) -> None:
        a, b = cast(game, "ann", "bob")
        with anyio.CancelScope() as scope:

            async def stops() -> None:
                await a.say(max_tokens=3)
                scope.cancel()
                await anyio.sleep_forever()

            await game.first(stops(), b.say(max_tokens=9))
        await a.say(max_tokens=1)

    entries, _ = game(play, script, talker(9))
    assert unfinished(entries) == {"bob.0": 4}
