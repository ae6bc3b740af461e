"""Games on a store that is too small for them, and games that swap out while they wait: same words, same cones."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from agentcho import Choreographer, Engine, Game, RunConfig, Scenario
from agentcho.config import Leakage, Mode
from agentcho.events import Ended, Event
from agentcho.protocol.call import Prefill
from agentcho.testing import FakeEngine

from .plays import Schemer
from .test_real import Talk

GAMES = 8
WAYS: list[tuple[Mode, Leakage]] = [("choreographed", "audit"), ("choreographed", "enforce"), ("baseline", "audit")]
SLOW = [pytest.param(*way, marks=pytest.mark.slow) for way in WAYS[1:]]


def on(tiny: Engine, store: int, host: int) -> Engine:
    """An engine on the same network with its own store."""
    return Engine(tiny._model, tiny.framing, tiny.proofs, store, host, tiny.context)


class Patient(Talk):
    """The same talk; swaps out before each round, as if waiting for a person."""

    name = "patient"

    async def play(self, game: Game) -> Scenario.Outcome:
        alice, bob = game.cast(Schemer, "alice"), game.cast(Schemer, "bob")
        await game.announce("Talk to each other.")
        await game.together(alice.think("Plan."), bob.think("Plan."))
        for _ in range(2):
            game.swap_out()
            await alice.say(header="To Bob: ")
            await bob.say(header="To Alice: ")
        await game.together(alice.choose(["yes", "no"]), bob.choose(["yes", "no"]))
        return self.Outcome()


def told(
    engine: Engine, mode: Mode, leakage: Leakage, scenario: type[Scenario] = Talk, games: int = GAMES
) -> list[Any]:
    """The messages of several concurrent games with their cones, in an order that does not depend on timing."""
    events: list[Event] = []

    async def work() -> None:
        config = RunConfig(mode=mode, leakage=leakage, temperature=0, max_tokens=6, default_prompt="drop")
        async with Choreographer(engine, mode=mode, leakage=leakage) as c:
            each = (Game(c, number, 5, config, sink=events.append) for number in range(games))
            await c.tasks.together(*(game.play(scenario()) for game in each))

    anyio.run(work)
    engine.check_integrity()
    assert (engine.fullness.used, engine.fullness.host_used, engine.idle) == (1, 0, True)
    entries = [event.entry for event in events if isinstance(event, Ended)]
    lines = [(e.message.game, e.message.id, e.message.tokens, e.own and e.own.cone, e.direct) for e in entries]
    return sorted(lines, key=lambda line: line[:2])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "leakage"), [WAYS[0], *(pytest.param(*way, marks=pytest.mark.slow) for way in WAYS[1:])]
)
def test_games_of_four_times_the_store_say_the_same(tiny: Engine, mode: Mode, leakage: Leakage) -> None:
    roomy = on(tiny, 1 << 14, 0)
    expected = told(roomy, mode, leakage)
    most = roomy.fullness.high_water * roomy.fullness.page_tokens
    for host in (0, 20, 1 << 14):
        tight = on(tiny, most // 4, host)
        assert told(tight, mode, leakage) == expected
        assert tight.fullness.evicted > 0
        assert (tight.fullness.remade > 0) == (host < 1 << 14)


@pytest.mark.slow
@pytest.mark.parametrize("leakage", ["audit", "enforce"])
def test_a_game_that_waits_makes_room_and_goes_on(tiny: Engine, leakage: Leakage) -> None:
    expected = told(on(tiny, 1 << 14, 0), "choreographed", leakage, games=1)
    for host in (0, 1 << 14):
        engine = on(tiny, 1 << 14, host)
        assert told(engine, "choreographed", leakage, Patient, games=1) == expected
        assert engine.fullness.evicted > 0


def test_a_fake_engine_knows_what_was_swapped_out() -> None:
    fake = FakeEngine()

    async def work() -> None:
        async with Choreographer(fake) as c:
            await Game(c, 0, 5).play(Patient())

    anyio.run(work)
    assert fake.swapped
    assert fake.pages == 0


def test_what_is_not_held_is_not_swapped_out(tiny: Engine) -> None:
    from agentcho.choreography.requests import Request

    engine = on(tiny, 1 << 10, 1 << 10)

    async def work() -> None:
        async with Choreographer(engine) as c:
            one = (await c.run(Request((Prefill("one"),)))).made[0].id
            two = (await c.run(Request((Prefill("two"),)))).made[0].id
            c.swap_out([one, two, 99])
            c.release([two])
            await c.run(Request((Prefill("three"),)))
            assert engine.fullness.evicted == 1

    anyio.run(work)
    assert engine.fullness.used == 1
