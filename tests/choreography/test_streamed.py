"""Messages whose text arrives in pieces: the same as if it had come at once, and mostly encoded by then."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcho import Choreographer, Engine, Game, RunConfig
from agentcho.config import Leakage, Mode
from agentcho.errors import AudienceError, ContextOverflow, RequestError, ScenarioError
from agentcho.events import Event
from agentcho.games.play.streamed_messages import LEAST, Streamed
from agentcho.message import Message
from agentcho.records.transcript import TranscriptEntry
from agentcho.testing import FakeEngine

from .stage import Play, Scripted, Talker, game, heard

PAGE = "The river rose in the night, and the mill stood still until the third day. " * 12


def pieces(text: str, rng: Random) -> list[str]:
    """A text cut at random."""
    cuts = sorted(rng.sample(range(len(text)), min(9, len(text) - 1)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


async def streamed(game: Game, text: str, rng: Random) -> str:
    """Write a text in pieces; returns the id of the message."""
    async with game.streamed() as page:
        for piece in pieces(text, rng):
            await page.write(piece)
    assert page.id is not None
    return page.id


def on(
    engine: Engine,
    play: Play,
    script: Any,
    leakage: Leakage = "enforce",
    mode: Mode = "choreographed",
    **more: Any,
) -> list[TranscriptEntry]:
    """Play a script on a real engine and return its transcript; nothing may be left in the engine."""
    events, used = list[Event](), engine.fullness.used

    async def work() -> None:
        async with Choreographer(engine, mode=mode, leakage=leakage, **more) as c:
            config = RunConfig(leakage=leakage, mode=mode, max_tokens=4, default_prompt="drop", **more)
            await Game(c, config=config, sink=events.append).play(Scripted(script))
        engine.check_integrity()

    play(work)
    assert (engine.fullness.used, engine.rows) == (used, 0)
    return heard(events)


def reads(page: Any) -> Any:
    """A script in which an agent reads a page that `page` adds."""

    async def script(game: Game) -> str:
        ann = game.cast(Talker, "ann")
        await page(game)
        return (await ann.say(temperature=0)).text

    return script


@pytest.mark.parametrize("leakage", ["audit", "enforce"])
def test_who_reads_a_stream_reads_the_whole_text_at_its_place(play: Play, tiny: Engine, leakage: Leakage) -> None:
    whole = on(tiny, play, reads(lambda game: game.announce(PAGE)), leakage)
    parts = on(tiny, play, reads(lambda game: streamed(game, PAGE, Random(1))), leakage)
    assert [e.message.tokens for e in parts] == [e.message.tokens for e in whole]
    assert parts[0].message.text == PAGE
    assert parts[1].own is not None
    assert parts[1].own.receipt.context[0][1:] == whole[1].own.receipt.context[0][1:]  # type: ignore[union-attr]


LEAKAGES: list[Leakage] = ["audit", "enforce"]


@pytest.mark.parametrize("leakage", LEAKAGES)
def test_nothing_of_it_is_left_to_its_first_reader(play: Play, tiny: Engine, leakage: Leakage) -> None:
    """Most of it is encoded before the close and the rest at the close; all encoded tokens are counted."""
    fed = list[int]()

    async def script(game: Game) -> None:
        ann = game.cast(Talker, "ann")
        async with game.streamed() as page:
            for piece in pieces(PAGE, Random(2)):
                await page.write(piece)
            fed.append(game._choreographer.encoded)
        fed.append(game._choreographer.encoded - fed[0])
        said = await ann.say(max_tokens=1, to="ann")
        fed.extend((game._choreographer.encoded - sum(fed), len(said.tokens)))

    entries = on(tiny, play, script, leakage)
    length = len(entries[0].message.tokens)
    assert fed[0] > length // 2
    assert fed[0] + fed[1] >= length
    assert fed[2] <= fed[3]
    assert sum(entry.usage.encoded for entry in entries) == sum(fed[:3])


@pytest.mark.parametrize("leakage", LEAKAGES)
def test_the_deterministic_profile_encodes_at_the_close(play: Play, tiny: Engine, leakage: Leakage) -> None:
    """All of it at once, and its reader says the same as after an announcement."""

    before = list[int]()

    def script(page: Any) -> Any:
        async def played(game: Game) -> None:
            ann = game.cast(Talker, "ann")
            await page(game)
            before.append(game._choreographer.encoded)
            await ann.say(temperature=0, to="ann")

        return played

    parts = on(tiny, play, script(lambda game: streamed(game, PAGE, Random(3))), leakage, deterministic=True)
    whole = on(tiny, play, script(lambda game: game.announce(PAGE)), leakage, deterministic=True)
    assert before == [len(parts[0].message.tokens), 0]
    assert [e.message.tokens for e in parts] == [e.message.tokens for e in whole]


@pytest.mark.parametrize("more", [{"mode": "baseline"}, {"repair": "full"}])
def test_where_each_reader_has_it_in_its_own_prompt_nothing_is_encoded(
    play: Play, tiny: Engine, more: dict[str, Any]
) -> None:
    before = list[int]()

    async def script(game: Game) -> None:
        ann = game.cast(Talker, "ann")
        await streamed(game, PAGE, Random(3))
        before.append(game._choreographer.encoded)
        await ann.say(max_tokens=1)

    entries = on(tiny, play, script, **more)
    assert before == [0]
    assert entries[0].message.text == PAGE


ANY = st.lists(st.text(alphabet=st.characters(codec="utf-8"), max_size=400), max_size=12)
"""Pieces of arbitrary text."""


@settings(max_examples=15, deadline=None)
@given(parts=ANY)
def test_ids_are_those_of_the_whole_text(parts: list[str]) -> None:
    """However a text is cut, its ids and words are those of an announcement."""
    said_as_a_whole(parts, lambda script: game(anyio.run, script))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=ANY)
def test_ids_are_those_of_the_whole_text_under_a_real_tokenizer(parts: list[str], tiny: Engine) -> None:
    said_as_a_whole(parts, lambda script: on(tiny, anyio.run, script))


def said_as_a_whole(parts: list[str], played: Callable[[Any], Any]) -> None:
    """Check that the pieces end up as the ids of the whole text."""
    said = list[Message]()

    async def script(game: Game) -> None:
        ann = game.cast(Talker, "ann")
        async with game.streamed() as page:
            for part in parts:
                await page.write(part)
        await ann.say(max_tokens=1)
        told = await game.announce("".join(parts))
        said.extend((game.message(page.id or ""), game.message(told)))

    played(script)
    assert said[0].tokens == said[1].tokens
    assert said[0].text == said[1].text == "".join(parts)


def test_nobody_reads_it_before_it_is_closed(play: Play) -> None:
    async def script(game: Game) -> list[str]:
        ann = game.cast(Talker, "ann")
        async with game.streamed(to="ann") as page:
            await page.write(PAGE)
            first = await ann.say(max_tokens=1)
            assert page.id is None
            assert page.text == PAGE
        second = await ann.say(max_tokens=1)
        return [*first.parents, "|", *second.parents]

    entries, [over] = game(play, script)
    assert over.outcome == {"value": ["|", "ann.0", "scenario.0"]}
    assert str(next(e for e in entries if e.message.id == "scenario.0").message.audience) == "ann"


def test_an_error_in_the_midst_drops_it(play: Play) -> None:
    engine = FakeEngine()

    async def fails(game: Game, left: list[Streamed]) -> None:
        async with game.streamed() as page:
            left.append(page)
            await page.write(PAGE)
            raise LookupError("mine")

    async def script(game: Game) -> int:
        game.cast(Talker, "ann")
        left = list[Streamed]()
        with pytest.raises(LookupError, match="mine"):
            await fails(game, left)
        with pytest.raises(ScenarioError, match="closed"):
            await left[0].write("more")
        return len(game.said)

    _, [over] = game(play, script, engine)
    assert over.outcome == {"value": 0}


def test_what_nobody_ever_reads_is_given_up_with_the_game(play: Play, tiny: Engine) -> None:
    async def script(game: Game) -> None:
        game.cast(Talker, "ann")
        await streamed(game, PAGE, Random(4))

    [entry] = on(tiny, play, script)
    assert entry.message.text == PAGE


def test_what_is_wrong_is_told_at_the_close_or_at_once(play: Play, tiny: Engine) -> None:
    async def script(game: Game) -> int:
        game.cast(Talker, "ann")
        with pytest.raises(ContextOverflow):
            await streamed(game, PAGE * (2 + tiny.context // 500), Random(5))
        with pytest.raises(AudienceError):
            await game.streamed(to="nobody-of-that-name").__aenter__()
        async with game.streamed() as page:
            with pytest.raises(RequestError):
                await page.write(5)  # type: ignore[arg-type]
        return len(game.said)

    [entry] = on(tiny, play, script)
    assert entry.message.text == ""


def test_short_pieces_are_encoded_together(play: Play) -> None:
    """The number of steps depends on the length of the text, not on the number of pieces; the close adds one."""
    steps = list[int]()

    async def script(game: Game) -> None:
        game.cast(Talker, "ann")
        async with game.streamed() as page:
            for letter in PAGE:
                await page.write(letter)
        steps.append(game._choreographer.steps)

    game(play, script)
    assert 1 <= steps[0] <= len(PAGE) // LEAST + 1
