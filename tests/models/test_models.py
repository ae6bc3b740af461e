"""A run with several models: who speaks through which, how models are chosen, and whose encodings are whose."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from agentcho import Game
from agentcho.choreography.choreographer import Choreographer
from agentcho.config import ModelConfig, RunConfig
from agentcho.errors import ContextOverflow, EngineBusy, ModelError, RequestError
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.protocol.call import StepResult
from agentcho.testing import FakeEndpoint, FakeEngine
from agentcho.testing import play as rehearse

from .stage import Scripted, Talker, seen

PLACE = 1 << 40


async def talk(game: Game) -> None:
    """One agent speaks through the run's own model, one through another, and one switches."""
    await game.announce("Talk.")
    ann, bob = game.cast(Talker, "ann", system="Be ann."), game.cast(Talker, "bob", model="small")
    cleo = game.cast(Talker, "cleo", model=lambda turn: ("default", "small")[turn % 2])
    for _ in range(2):
        await game.together(ann.say(max_tokens=3), bob.say(to="everyone", prompt="Well?", max_tokens=3))
        await cleo.say(max_tokens=3)


@pytest.mark.parametrize("leakage", ["enforce", "audit"])
def test_each_speaks_through_its_model_and_no_id_is_given_twice(leakage: str) -> None:
    """The run's own engine gives the same ids as ever."""
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
    """A run that uses one model does not change because another is available."""

    async def alone(game: Game) -> None:
        ann, bob = game.cast(Talker, "ann", system="Be ann."), game.cast(Talker, "bob", model="default")
        await game.together(ann.say(), bob.say())

    one, two = seen(alone, {}), seen(alone)
    assert [entry.made for entry in one.entries] == [entry.made for entry in two.entries]
    assert [entry.message for entry in one.entries] == [entry.message for entry in two.entries]


@pytest.mark.parametrize(
    ("model", "told"),
    [("large", "the run's models are default, small; add it to them"), (7, "of type int"), ("", "''")],
)
def test_a_model_that_the_run_has_not_is_refused_when_it_is_given(model: Any, told: str) -> None:
    async def script(game: Game) -> None:
        game.cast(Talker, "ann", model=model)

    with pytest.raises(RequestError, match=told):
        seen(script)


@pytest.mark.parametrize(("name", "told"), [("large", "'large'"), (3, "of type int"), (b"small", "of type bytes")])
def test_a_function_that_gives_no_model_is_refused_at_its_turn(name: Any, told: str) -> None:
    """What was said before is kept."""

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
    for _ in range(2):  # the second run uses other ids than the first
        seen(talk, {"small": other}, one)
        seen(talk, {"small": one}, other)
    assert one.idle
    assert other.idle
    assert one.pages == other.pages == 0


def test_a_text_too_long_for_a_model_is_refused_to_who_reads_it_there_with_its_name() -> None:
    """The author and readers on other models go on."""
    heard: list[str] = []

    async def script(game: Game) -> None:
        ann, bob = game.cast(Talker, "ann"), game.cast(Talker, "bob", model="small")
        await ann.tell("word " * 60, to="everyone")
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
    played = play(RunRequest(Scripted(script), RunConfig(model="fake", models=models)))
    assert played.error is None
    with pytest.raises(ModelError, match="model 'c': no model 'nowhere/at/all'"):
        play(RunRequest(Scripted(script), RunConfig(models={"c": ModelConfig(model="nowhere/at/all")})))


@pytest.mark.parametrize("name", ["default", "", "a b", "-a", "x" * 65, "a\n"])
def test_names_of_models_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a model"):
        RunConfig(models={name: ModelConfig(model="fake")})


def test_an_engine_that_another_run_has_is_busy() -> None:
    other = FakeEngine()

    async def main() -> None:
        async with Choreographer(other):
            with pytest.raises(EngineBusy):
                await anyio.to_thread.run_sync(lambda: seen(talk, {"small": other}))

    anyio.run(main)


@pytest.mark.parametrize("way", [{}, {"leakage": "audit"}, {"mode": "baseline"}])
def test_long_words_go_from_fake_to_fake(way: dict[str, Any]) -> None:
    """Equal tokenizers accept each other's ids, whichever met a word first."""

    async def script(game: Game) -> None:
        ann, bob = game.cast(Talker, "ann"), game.cast(Talker, "bob", model="small")
        await ann.say(max_tokens=4)
        await bob.say(max_tokens=4)

    replies = iter(("a word nobodyhasevermetbefore", "yes"))
    engine, other = FakeEngine(lambda call, prompt: next(replies)), FakeEngine(lambda call, prompt: prompt)
    found = seen(script, {"small": other}, engine, **way)
    assert found.entries[-1].message.text.split()[:3] == ["a", "word", "nobodyhasevermetbefore"]
    assert not any(record.respelled for record in found.made)


@pytest.mark.parametrize("first", ["own", "other"])
def test_nothing_is_left_where_one_of_the_engines_is_busy(first: str) -> None:
    """Engines opened before it are released."""
    own, other, third = FakeEngine(), FakeEngine(), FakeEngine()

    async def main() -> None:
        async with Choreographer(own if first == "own" else other):
            with pytest.raises(EngineBusy):
                await anyio.to_thread.run_sync(lambda: seen(talk, {"small": other, "third": third}, own))

    anyio.run(main)
    seen(talk, {"small": third, "third": other}, own)


def test_an_engine_that_fails_ends_the_games_that_speak_on_it_and_no_other() -> None:
    """The game that speaks on the other engine alone is played to its end."""
    own, other = FakeEngine(), FakeEngine()

    async def script(game: Game) -> None:
        ann = game.cast(Talker, "ann", model="small" if game.index else None)
        await ann.say(max_tokens=2)
        if game.index:
            other.broken = OSError("gone")
            await ann.say(max_tokens=2)

    played = play(RunRequest(Scripted(script), RunConfig(model="fake", games=2), engine=own, others={"small": other}))
    assert list(played.errors) == [1]
    assert "OSError" in str(played.errors[1].error)


class Busy(Talker):
    """Speaks repeatedly, each time longer, and tells something in between."""

    async def run(self) -> None:
        for turn in range(3):
            await self.say(max_tokens=1 + turn)
            await self.tell(f"That was {turn}.")


class Slow(FakeEngine):
    """An engine whose steps each end after a number of event loop rounds."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds, self.round, self.turned = rounds, 0, threading.Condition()

    def turn(self) -> None:
        """Report one round of the event loop."""
        with self.turned:
            self.round += 1
            self.turned.notify_all()

    def step(self, deterministic: bool = False) -> StepResult:
        with self.turned:
            end = self.round + self.rounds
            assert self.turned.wait_for(lambda: self.round >= end, timeout=30)
        return super().step(deterministic)


def test_however_long_an_engine_takes_the_steps_are_the_same() -> None:
    """The other engine waits, and takes up exactly what was requested by then."""

    def batches(rounds: int) -> list[list[tuple[int, ...]]]:
        engines = FakeEngine(), Slow(rounds)

        async def turning() -> None:
            while True:
                engines[1].turn()
                await anyio.lowlevel.checkpoint()

        async def script(game: Game) -> None:
            agents = [game.cast(Busy, name, model="small" if name > "b" else None) for name in ("ann", "bob", "cat")]
            async with anyio.create_task_group() as group:
                group.start_soon(turning)
                await game.play_agents(*agents)
                group.cancel_scope.cancel()

        seen(script, {"small": engines[1]}, engines[0])
        return [engine.batches for engine in engines]

    first = batches(0)
    assert all(len(each) > 4 for each in first)
    assert batches(1) == batches(7) == batches(60) == first


def test_a_rehearsal_has_models_beside_its_own() -> None:
    async def script(game: Game) -> str:
        ann = game.cast(Talker, "ann", model=lambda turn: ("small", "far")[turn])
        await ann.say(max_tokens=2)
        return (await ann.say()).text

    small = FakeEngine()
    found = rehearse(script, others={"small": small, "far": FakeEndpoint(lambda call: "from far")})
    assert [entry.engine for entry in found.entries] == ["small", "far"]
    assert found.over.outcome == {"value": "from far"}
    assert small.steps
