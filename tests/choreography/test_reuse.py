"""One choreographer runs games with different reuse policies; none changes the words or bits of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
import torch
from torch import Tensor

from agentcho.choreography.choreographer import Choreographer
from agentcho.config import Leakage, ReusePolicy, RunConfig
from agentcho.events import Ended, Event
from agentcho.games.play.game import Game
from agentcho.protocol.call import DEFAULT_PRIORITY, Call, EncodingId, Repair, SchedulingPriority, StepResult
from agentcho.records.transcript import TranscriptEntry
from agentcho.reuse.ape import Ape
from agentcho.reuse.first_k import FirstK
from agentcho.reuse.method import Weighing
from agentcho.runner.engine import Engine
from agentcho.scenario import Scenario
from agentcho.testing import FakeEngine
from tests.choreography.plays import plans_and_talk
from tests.choreography.test_real import Keeping

FAST = (ReusePolicy("baseline"), ReusePolicy("choreographed", "audit"), ReusePolicy("choreographed", "enforce"))
EXACT = ReusePolicy("choreographed", "enforce", deterministic=True)
REPAIRED = ReusePolicy("choreographed", "enforce", deterministic=True, repair=FirstK(3))


class Talk(Scenario):
    """Two private plans, then turns of talk."""

    name = "talk"

    async def play(self, game: Game) -> Scenario.Outcome:
        await plans_and_talk(game)
        return self.Outcome()


def talk(
    engine: Any, ways: Sequence[ReusePolicy | None], default: ReusePolicy = FAST[1]
) -> list[list[TranscriptEntry]]:
    """The transcripts of concurrent games with these policies."""
    events: list[Event] = []

    async def work() -> None:
        async with Choreographer(engine, default) as c:
            config = RunConfig(max_tokens=7)
            games = [Game(c, i, 5, config, sink=events.append, reuse=reuse) for i, reuse in enumerate(ways)]
            await c.tasks.together(*(game.play(Talk()) for game in games))

    anyio.run(work)
    entries = [event.entry for event in events if isinstance(event, Ended)]
    return [[entry for entry in entries if entry.message.game == number] for number in range(len(ways))]


def how(game: Sequence[TranscriptEntry]) -> list[object]:
    """The words, and the encodings of which messages they came from, regardless of encoding ids and lines."""
    made = {record.id: (record.message, record.recipe) for entry in game for record in entry.made}
    contexts = sorted(
        (made[record.id], [(made.get(piece.id), piece.offset) for piece in record.receipt.context])
        for entry in game
        for record in entry.made
    )
    said = sorted(((entry.message, entry.direct) for entry in game), key=lambda each: each[0].id)
    return [*said, contexts]


def test_games_of_three_ways_go_side_by_side_as_they_go_alone() -> None:
    together = talk(FakeEngine(), FAST)
    for number, reuse in enumerate(FAST):
        alone = talk(FakeEngine(), [None] * number + [reuse], reuse)[number]
        assert how(together[number]) == how(alone)
    assert len({str(how(game)[-1]) for game in together}) == len(FAST)


@pytest.mark.parametrize("leakage", ["audit", "enforce"])
def test_weighing_changes_no_encoding_that_is_read_and_no_cone(leakage: Leakage) -> None:
    class Spy(FakeEngine):
        def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
            asked.update(call.ape for call in calls if not isinstance(call, Repair))
            return super().submit(calls, turn)

    place = ReusePolicy("choreographed", leakage, in_place=True)
    played = []
    for ape in (None, Ape(0.6, 0.8)):
        asked = set[Weighing | None]()
        played.append(talk(Spy(), (place._replace(ape=ape),))[0])
        assert asked == {ape}
    one, other = played
    assert how(one) == how(other)
    cones = [sorted((r.message, r.recipe, sorted(r.cone)) for entry in game for r in entry.made) for game in played]
    assert cones[0] == cones[1]


def test_a_game_that_says_nothing_goes_as_the_choreographer_was_opened() -> None:
    async def work() -> None:
        async with Choreographer(FakeEngine(), FAST[0]) as c:
            assert Game(c).reuse == Game(c, config=RunConfig(max_tokens=3)).reuse == FAST[0]
            assert Game(c, config=RunConfig(leakage="audit")).reuse == FAST[1]
            assert Game(c, config=RunConfig(leakage="audit"), reuse=EXACT).reuse == EXACT

    anyio.run(work)


def test_steps_are_exact_as_long_as_an_exact_request_is_under_way() -> None:
    class Watched(FakeEngine):
        def step(self, deterministic: bool = False) -> StepResult:
            exact.append(deterministic)
            return super().step(deterministic)

    exact: list[bool] = []
    for ways, expected in (((FAST[2],), {False}), ((EXACT,), {True}), ((FAST[0], EXACT), {True, False})):
        exact.clear()
        talk(Watched(lambda call, prompt: "word " * len(prompt)), ways)
        assert set(exact) <= expected
        assert (True in exact) == (EXACT in ways)


def test_an_exact_game_shares_no_keys_with_a_fast_one() -> None:
    class Spy(FakeEngine):
        def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
            salts[turn.workflow] = salts.get(turn.workflow, set()) | {call.salt for call in calls}
            return super().submit(calls, turn)

    for fast in FAST:
        salts: dict[str, set[str]] = {}
        talk(Spy(), (fast, fast._replace(deterministic=True)))
        assert salts["0"]
        assert salts["0"].isdisjoint(salts["1"])


class Bits(Keeping):
    """An engine, also recording the keys and values of everything that it encodes."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.cached: dict[EncodingId, list[tuple[Tensor, Tensor]]] = {}

    def step(self, deterministic: bool = False) -> StepResult:
        result = super().step(deterministic)
        self.cached.update((id, self.engine.cached(id)) for id in result.finished)
        return result


def bits(engine: Engine, ways: Sequence[ReusePolicy]) -> dict[object, tuple[Tensor, ...]]:
    """For the first game: the logits of its messages, and keys and values of all its encodings."""
    keeping, used = Bits(engine), engine.fullness.used
    [game, *_] = talk(keeping, ways)
    assert (engine.fullness.used, engine.idle) == (used, True)
    found: dict[object, tuple[Tensor, ...]] = {}
    for entry in game:
        found[entry.message.id] = (keeping.logits.get(entry.encoding or 0, torch.zeros(0)),)
        for record in entry.made:
            key = (record.message, record.recipe, record.caller, len(found))
            found[key] = tuple(each for pair in keeping.cached[record.id] for each in pair)
    return found


@pytest.mark.parametrize(
    "reuse", [pytest.param(EXACT, id="exact"), pytest.param(REPAIRED, id="repaired", marks=pytest.mark.slow)]
)
def test_an_exact_game_has_the_bits_beside_fast_ones_that_it_has_alone(tiny: Engine, reuse: ReusePolicy) -> None:
    alone, beside = bits(tiny, [reuse]), bits(tiny, [reuse, *FAST])
    assert alone.keys() == beside.keys()
    assert any(len(rows[0]) for rows in alone.values())
    for key, tensors in alone.items():
        assert all(torch.equal(one, other) for one, other in zip(tensors, beside[key], strict=True)), key


def test_fast_games_say_the_same_beside_an_exact_one(tiny: Engine) -> None:
    beside = talk(tiny, [EXACT, *FAST])[1:]
    alone = talk(tiny, [EXACT._replace(deterministic=False), *FAST])[1:]
    for one, other in zip(beside, alone, strict=True):
        assert [entry.message for entry in one] == [entry.message for entry in other]
