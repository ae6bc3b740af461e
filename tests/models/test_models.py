"""A run with several models: who speaks through which, how it is asked for, and whose encodings are whose."""

from __future__ import annotations

from typing import Any

import pytest

from agentcho import Game
from agentcho.choreography.choreographer import Choreographer
from agentcho.config import ModelConfig, RunConfig
from agentcho.errors import ContextOverflow, ModelError, RequestError
from agentcho.games.runtime import play
from agentcho.testing import FakeEngine

from .stage import Scripted, Talker, seen

PLACE = 1 << 40


async def talk(game: Game) -> None:
    """One speaks through the run's own model, one through another, and one moves."""
    await game.announce("Talk.")
    ann, bob = game.cast(Talker, "ann", system="Be ann."), game.cast(Talker, "bob", model="small")
    cleo = game.cast(Talker, "cleo", model=lambda turn: ("default", "small")[turn % 2])
    for _ in range(2):
        await game.together(ann.say(max_tokens=3), bob.say("everyone", "Well?", max_tokens=3))
        await cleo.say(max_tokens=3)


@pytest.mark.parametrize("leakage", ["enforce", "audit"])
def test_each_speaks_through_its_model_and_no_id_is_given_twice(leakage: str) -> None:
    """The run's own engine gives out the ids that it always did."""
    found = seen(talk, leakage=leakage)
    said = {e.message.id: e.engine for e in found.entries if e.message.kind == "decode"}
    assert said == {
        "ann.1": None,
        "bob.1": "small",
        "cleo.0": None,
        "ann.2": None,
        "bob.3": "small",
        "cleo.1": "small",
    }
    ids = [record.id for record in found.made]
    assert len(set(ids)) == len(ids)
    for record in found.made:
        place = 0 if record.engine is None else 1
        assert place * PLACE < record.id < (place + 1) * PLACE
        assert all(read.id // PLACE == place for read in record.receipt.context)
    assert min(ids) == 1


def test_the_own_engine_says_what_it_says_alone() -> None:
    """Nothing of a run with one model changes because it could have had another."""

    async def alone(game: Game) -> None:
        ann, bob = game.cast(Talker, "ann", system="Be ann."), game.cast(Talker, "bob", model="default")
        await game.together(ann.say(), bob.say())

    one, two = seen(alone, {}), seen(alone)
    assert [entry.made for entry in one.entries] == [entry.made for entry in two.entries]
    assert [entry.message for entry in one.entries] == [entry.message for entry in two.entries]


@pytest.mark.parametrize(
    ("model", "told"),
    [("large", "the run has default, small; add it to the run's models"), (7, "of type int"), ("", "''")],
)
def test_a_model_that_the_run_has_not_is_refused_when_it_is_given(model: Any, told: str) -> None:
    async def script(game: Game) -> None:
        game.cast(Talker, "ann", model=model)

    with pytest.raises(RequestError, match=told):
        seen(script)


@pytest.mark.parametrize(("name", "told"), [("large", "'large'"), (3, "of type int"), (b"small", "of type bytes")])
def test_a_function_that_gives_no_model_is_refused_at_its_turn(name: Any, told: str) -> None:
    """What was said before stays said."""

    async def script(game: Game) -> None:
        ann = game.cast(Talker, "ann", model=lambda turn: name if turn else None)
        await ann.say()
        await ann.say()

    with pytest.raises(RequestError, match=told):
        seen(script)


def test_a_method_is_asked_for_each_turn_with_its_number() -> None:
    asked = list[int]()

    class Counting(Talker):
        def model(self, turn: int) -> str:
            asked.append(turn)
            return "small" if turn == 1 else "default"

    async def script(game: Game) -> None:
        ann = game.cast(Counting, "ann")
        await ann.say(prompt="Once.")
        await ann.say(prompt="Twice.")
        await ann.tell("Done.")

    found = seen(script)
    assert asked == [0, 1, 2]
    assert [entry.engine for entry in found.entries] == [None, None, "small", "small", None]


def test_two_names_of_one_engine_are_one_engine() -> None:
    one = FakeEngine()

    async def script(game: Game) -> None:
        ann = game.cast(Talker, "ann", model=lambda turn: ("a", "b", "default")[turn])
        for _ in range(3):
            await ann.say(max_tokens=2)

    found = seen(script, {"a": one, "b": one})
    assert [entry.engine for entry in found.entries] == ["a", "a", None]
    assert {record.engine for record in found.made} == {None, "a"}


def test_the_engines_of_a_run_are_empty_and_free_when_it_is_over() -> None:
    one, other = FakeEngine(), FakeEngine()
    for _ in range(2):  # the second run gives out other ids than the first
        seen(talk, {"small": other}, one)
        seen(talk, {"small": one}, other)
    assert one.idle
    assert other.idle
    assert one.pages == other.pages == 0


def test_a_text_too_long_for_a_model_is_refused_to_who_reads_it_there_with_its_name() -> None:
    """Its author, and readers elsewhere, go on."""
    heard: list[str] = []

    async def script(game: Game) -> None:
        ann, bob = game.cast(Talker, "ann"), game.cast(Talker, "bob", model="small")
        await ann.tell("word " * 60, "everyone")
        with pytest.raises(ContextOverflow, match="the model 'small' has 40"):
            await bob.say(max_tokens=2)
        await ann.say(max_tokens=2)
        heard.append("ann")

    seen(script, {"small": FakeEngine(context=40)})
    assert heard == ["ann"]


def test_equal_models_are_loaded_once_and_what_is_wrong_is_said_before_any_is_loaded() -> None:
    async def script(game: Game) -> None:
        assert len({id(each.choreographer) for each in (game._models.named("ann", n) for n in ("a", "b"))}) == 1

    models = {"a": ModelConfig(model="fake"), "b": ModelConfig(model="fake")}
    played = play(Scripted(script), RunConfig(model="fake", models=models))
    assert played.error is None
    with pytest.raises(ModelError, match="the model 'c': no model 'nowhere/at/all'"):
        play(Scripted(script), RunConfig(models={"c": ModelConfig(model="nowhere/at/all")}))


@pytest.mark.parametrize("name", ["default", "", "a b", "-a", "x" * 65, "a\n"])
def test_names_of_models_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match="names no model"):
        RunConfig(models={name: ModelConfig(model="fake")})


def test_an_engine_that_another_run_has_is_busy() -> None:
    import anyio

    from agentcho.errors import EngineBusy

    other = FakeEngine()

    async def main() -> None:
        async with Choreographer(other):
            with pytest.raises(EngineBusy):
                await anyio.to_thread.run_sync(lambda: seen(talk, {"small": other}))

    anyio.run(main)
