"""Tools in games on tiny networks: the encoding of results, and calls made by an unscripted model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import anyio
import pytest
import torch
from torch import Tensor

import agentcho
from agentcho import Agent, Choreographer, Engine, Game, RunConfig, Scenario, View
from agentcho.events import Ended, Event
from agentcho.games.play.tool_turn import CALL, TEXT
from agentcho.message import EVERYONE
from agentcho.protocol.call import EncodingId
from agentcho.records.transcript import TranscriptEntry

from ..choreography.test_real import Keeping
from ..engine.families import Family, llama_family
from ..engine.oracle import Message, Oracle
from ..engines import Engines

MARKED = Family("llama", "Llama", style="hermes")
"""A model whose template has a format for calls."""


@agentcho.tool(audience="nobody", results="bob")
def look(where: Literal["here", "there"]) -> str:
    """Looks."""
    return f"There is a lamp {where}."


class Looking(Scenario):
    """Ann keeps a secret, looks and speaks; Bob reads only what she found."""

    async def play(self, game: Game) -> Scenario.Outcome:
        ann, bob = game.cast(Agent, "ann", system="You are Ann."), game.cast(Agent, "bob")
        await ann.say(to="ann", max_tokens=6)
        await ann.say(to="everyone", tools=[look], tool_choice="required", max_calls=1, max_tokens=6)
        [found] = [message.id for message in game.said if message.role == "tool"]
        await bob.say(to="bob", view=View.of([found]), max_tokens=6)
        return self.Outcome()


class Free(Scenario):
    """Ann may call or speak."""

    async def play(self, game: Game) -> Scenario.Outcome:
        ann, _ = game.cast(Agent, "ann"), game.cast(Agent, "bob")
        await ann.say(to="everyone", tools=[look], max_calls=2, max_tokens=6)
        return self.Outcome()


def played(engine: Engine, scenario: Scenario, seed: int = 0) -> tuple[list[TranscriptEntry], dict[EncodingId, Tensor]]:
    """The entries of one game, and the logits sampled from, by encoding. Checks that nothing is left."""
    keeping, used, events = Keeping(engine), engine.fullness.used, list[Event]()

    async def work() -> None:
        config = RunConfig(mode="choreographed", leakage="enforce")
        async with Choreographer(keeping, mode="choreographed", leakage="enforce") as choreographer:
            await Game(choreographer, 0, seed, config, sink=events.append).play(scenario)

    anyio.run(work)
    assert (engine.fullness.used, engine.rows, engine.idle) == (used, 0, True)
    return [event.entry for event in events if isinstance(event, Ended)], keeping.logits


@pytest.fixture
def plain(engines: Engines) -> Iterator[Engine]:
    with engines(store_tokens=1 << 14) as engine:
        yield engine


@pytest.fixture
def marked(engines: Engines) -> Iterator[Engine]:
    with engines(MARKED, store_tokens=1 << 14) as engine:
        yield engine


def _is_result(entry: TranscriptEntry) -> bool:
    return entry.origin == "tool"


def _is_bobs(entry: TranscriptEntry) -> bool:
    return entry.message.author == "bob"


def check_the_result(engine: Engine, oracle: Oracle) -> None:
    """Bob's words are chosen over the result alone, as encoded by a stock model after only its first token."""
    entries, logits = played(engine, Looking())
    [result], [bob] = ([each for each in entries if ok(each)] for ok in (_is_result, _is_bobs))
    assert result.message.parents == ()
    made = [record for entry in entries for record in entry.made if record.message == result.message.id]
    assert [record.cone for record in made] == [{result.message.id}]
    receipt = next(record.receipt for record in bob.made if record.id == bob.encoding)
    assert [piece.id for piece in receipt.context] == [made[0].id]
    alone = oracle.add(Message(result.message.tokens, made[0].receipt.start))
    said = oracle.add(Message(bob.message.tokens, receipt.start, ((alone, receipt.context[0].offset),)))
    start, stop = bob.message.sampled or (0, 0)
    assert stop > start
    expected = oracle.logits(said)[start - 1 : stop].log_softmax(-1)
    assert bob.encoding is not None
    rows = logits[bob.encoding]
    assert torch.allclose(rows, expected[: len(rows)], atol=1e-4, rtol=0)


def test_a_result_is_on_weights_what_it_is_when_it_is_encoded_alone(plain: Engine, engines: Engines) -> None:
    family = llama_family()
    check_the_result(plain, Oracle(engines.stock(family), family.layers, plain.framing.bos))


@pytest.mark.slow
def test_where_a_template_has_a_marker_too(marked: Engine, engines: Engines) -> None:
    check_the_result(marked, Oracle(engines.stock(MARKED), MARKED.layers, marked.framing.bos))


@pytest.mark.slow
def test_a_model_without_a_marker_samples_first_which_of_the_two_it_will_be(plain: Engine) -> None:
    assert not plain.framing.tools.auto
    ways = set[tuple[str, ...]]()
    for seed in range(6):
        said = [entry for entry in played(plain, Free(), seed)[0] if entry.message.kind == "decode"]
        *before, text = said
        chosen = tuple(entry.message.text for entry in before if entry.act.choices)
        assert all(entry.act.choices == (CALL, TEXT) for entry in before[::2])
        assert all(str(entry.message.audience) == "ann" for entry in before)
        calls = [plain.framing.tools.read(entry.message.text)[1] for entry in before[1::2]]
        assert [call.name for [call] in calls] == ["look"] * chosen.count(CALL)
        assert text.message.audience == EVERYONE
        assert chosen in {(TEXT,), (CALL, TEXT), (CALL, CALL)}
        ways.add(chosen)
    assert len(ways) > 1


@pytest.mark.slow
def test_what_a_model_with_a_marker_begins_is_what_it_then_says(marked: Engine) -> None:
    assert marked.framing.tools.auto
    begun, text = [entry.message for entry in played(marked, Free())[0] if entry.message.kind == "decode"]
    assert str(begun.audience) == "ann"
    assert text.audience == EVERYONE
    assert text.text.startswith(begun.text)
