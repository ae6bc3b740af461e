"""Calls of verbs that nobody awaits: a game warns of them at their lines, and of no other call."""

import asyncio
import gc
import warnings
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import anyio
import pytest

from agentcho import Agent, Game
from agentcho.testing import play

Script = Callable[[Game, Agent, Agent], Coroutine[Any, Any, object]]


def warned(script: Script) -> list[tuple[str, int]]:
    """The beginnings of the warnings of a game, with the numbers of their lines after the first line of its script.
    Python itself warns of no coroutine."""

    async def playing(game: Game) -> None:
        await script(game, game.cast(Agent, "ann", audience="everyone"), game.cast(Agent, "ben"))

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        play(playing)
        gc.collect()
    first = script.__code__.co_firstlineno
    assert {each.filename for each in seen} <= {__file__}
    assert all("so it did nothing" in str(each.message) for each in seen)
    return [(str(each.message).split("() was")[0], each.lineno - first) for each in seen]


async def forgets_one(game: Game, ann: Agent, ben: Agent) -> None:
    ann.say(max_tokens=4)  # type: ignore[unused-coroutine]
    await ben.say(max_tokens=4)


async def forgets_a_round(game: Game, ann: Agent, ben: Agent) -> None:
    game.together(  # type: ignore[unused-coroutine]
        ann.say(max_tokens=4),
        ben.tell("no"),
    )


async def keeps_one(game: Game, ann: Agent, ben: Agent) -> None:
    kept.append(ann.think())


kept = list[Coroutine[Any, Any, object]]()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (forgets_one, [("ann.say", 1)]),
        (forgets_a_round, [("game.together", 1)]),
        (keeps_one, [("ann.think", 1)]),
    ],
)
def test_a_call_that_was_never_awaited_is_told_at_its_line(script: Script, expected: list[tuple[str, int]]) -> None:
    try:
        assert warned(script) == expected
    finally:
        while kept:
            kept.pop().close()


def test_it_is_a_warning_of_the_game_that_it_was_forgotten_in() -> None:
    async def script(game: Game) -> None:
        game.cast(Agent, "ann").say()  # type: ignore[unused-coroutine]

    with pytest.raises(RuntimeWarning, match=r"ann\.say\(\) was never awaited, .* write `await ann\.say\(\.\.\.\)`"):
        play(script)


async def closes(game: Game, ann: Agent, ben: Agent) -> None:
    ann.say().close()
    kept_for_now = ben.say()
    kept_for_now.close()


async def plays_rounds(game: Game, ann: Agent, ben: Agent) -> None:
    await game.together(*[each.say(max_tokens=2) for each in (ann, ben)])
    await game.first(ann.say(max_tokens=1), ben.say(max_tokens=9))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await game.together(ann.say(), ben.say())
    async with anyio.create_task_group() as group:
        group.start_soon(ann.say)
        group.start_soon(anyio.lowlevel.checkpoint)


async def refuses(game: Game, ann: Agent, ben: Agent) -> None:
    with pytest.raises(Exception, match="is not a move"):
        await game.together(ann.say(), "ben")  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"is not a move; .* pass the moves one by one"):
        await game.together([ann.say(), ben.say()])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await ann.tell()  # type: ignore[call-arg]


@pytest.mark.parametrize("script", [closes, plays_rounds, refuses])
def test_calls_that_were_awaited_or_closed_are_not_told(script: Script) -> None:
    assert warned(script) == []


async def cancels_tasks(game: Game, ann: Agent, ben: Agent) -> None:
    """Cancellation before a task has started throws into its coroutine; kept errors keep what it was given alive."""
    one = asyncio.create_task(ann.say())
    one.cancel()
    with suppress(asyncio.CancelledError):
        await one
    others = [asyncio.create_task(each.say()) for each in (ann, ben)]
    for other in others:
        other.cancel()
    thrown.extend(await asyncio.gather(*others, return_exceptions=True))
    await ben.say(max_tokens=2)


thrown = list[object]()


def test_tasks_that_were_cancelled_before_they_began_are_not_told() -> None:
    try:
        assert warned(cancels_tasks) == []
        assert len(thrown) == 2
    finally:
        thrown.clear()


def test_an_error_after_a_forgotten_await_says_so() -> None:
    async def script(game: Game) -> None:
        kept.append(game.cast(Agent, "ann").choose(["a", "b"]))
        kept[0].text  # type: ignore[attr-defined]  # noqa: B018

    try:
        with warnings.catch_warnings(record=True, action="always") as seen, pytest.raises(AttributeError) as raised:
            play(script)
        assert [(each.filename, str(each.message).split(",")[0]) for each in seen] == [
            (__file__, "ann.choose() was never awaited")
        ]
        assert any("ann.choose() was never awaited" in note for note in raised.value.__notes__)
    finally:
        while kept:
            kept.pop().close()
