"""Verbs take `to` by name, and until 0.6 also by position, with a warning at the caller's line."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest

from agentcho import Agent, Game

from .stage import Play, Talker, game

OWN = {
    "think": ["prompt"],
    "say": [],
    "stream": [],
    "choose": ["choices", "prompt"],
    "ask": ["prompt", "choices"],
    "answer": ["model", "prompt"],
    "tell": ["text"],
    "release": ["message"],
}
"""What each verb takes by position."""


def test_all_verbs_take_by_position_what_they_are_about_and_the_prompt() -> None:
    for verb, names in OWN.items():
        parameters = inspect.signature(getattr(Agent, verb)).parameters.values()
        assert [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD] == ["self", *names], verb
    told = inspect.signature(Game.announce).parameters.values()
    assert [each.name for each in told if each.kind is each.POSITIONAL_OR_KEYWORD] == ["self", "text"]


async def by_position(game: Game, ann: Any) -> None:
    """Give all that verbs once took by position so."""
    host: Any = game
    await ann.say("ben", "Greet Ben.")
    await ann.choose(["a", "b"], "Which?", "ben", "I say ", ".")
    await ann.ask("Which?", ["a", "b"], "ben", "I say ", ".")
    await ann.release(await ann.think(), "ben")
    await ann.tell("Known.", "ben", "user")
    async with ann.stream("ben", "Again.") as pieces:
        [_ async for _ in pieces]
    await host.announce("To Ben.", "ben", "system")


async def named(game: Game, ann: Agent) -> None:
    """The same, by name."""
    await ann.say(to="ben", prompt="Greet Ben.")
    await ann.choose(["a", "b"], "Which?", to="ben", opening="I say ", closing=".")
    await ann.ask("Which?", ["a", "b"], to="ben", opening="I say ", closing=".")
    await ann.release(await ann.think(), to="ben")
    await ann.tell("Known.", to="ben", role="user")
    async with ann.stream(to="ben", prompt="Again.") as pieces:
        [_ async for _ in pieces]
    await game.announce("To Ben.", to="ben", role="system")


def test_arguments_by_position_mean_what_they_did_and_warn_at_the_line_of_the_call(play: Play) -> None:
    said = {}
    for way in (by_position, named):

        async def script(game: Game, way: Any = way) -> None:
            ann, _ = game.cast(Talker, "ann"), game.cast(Talker, "ben")
            await way(game, ann)

        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            entries, [over] = game(play, script)
        assert over.ended is None
        said[way] = [(e.message.id, e.message.text, e.message.audience, e.message.role) for e in entries]
        if way is named:
            assert not found
            continue
        assert {each.category for each in found} == {FutureWarning}
        first, last = by_position.__code__.co_firstlineno, by_position.__code__.co_firstlineno + 12
        assert [(each.filename, first < each.lineno < last) for each in found] == [(__file__, True)] * 7
        assert len({each.lineno for each in found}) == 7
        assert str(found[0].message) == (
            "Agent.say() takes `to` and `prompt` by name: give to=…, prompt=…. Positional values are accepted until "
            "agentcho 0.6"
        )
    assert said[by_position] == said[named]


def test_what_was_never_taken_is_refused_as_python_does(play: Play) -> None:
    async def script(game: Game) -> None:
        ann: Any = game.cast(Talker, "ann")
        with pytest.raises(TypeError, match="positional argument"):
            await ann.say("ann", "Hello", "header")
        with pytest.warns(FutureWarning), pytest.raises(TypeError, match="multiple values for keyword argument 'to'"):
            await ann.say("ann", to="ann")

    _, [over] = game(play, script)
    assert over.ended is None
