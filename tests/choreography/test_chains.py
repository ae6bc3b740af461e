"""Long chains: reading the end of ten thousand messages, each over the one before."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter
from typing import Any

import pytest

from agentcho import Agent, Game, RunConfig, View
from agentcho.audit.cones import Cones
from agentcho.config import Leakage, Mode
from agentcho.testing import Rehearsal, play

WAYS: list[tuple[Mode, Leakage]] = [("choreographed", "audit"), ("choreographed", "enforce"), ("choreographed", "deny")]


def chain(
    length: int, mode: Mode, leakage: Leakage, repair: str | None = None, clock: Callable[[], float] = perf_counter
) -> tuple[Rehearsal, list[float]]:
    """A game in which an agent tells `length` messages, each over the last, and another reads the end; returns it with
    the clock at each tenth."""
    times = [clock()]

    async def script(game: Game) -> None:
        alice, bob = game.cast(Agent, "alice"), game.cast(Agent, "bob")
        last = await alice.tell("begin", to="everyone")
        for number in range(1, length):
            last = await alice.tell("go on", to="everyone", view=View.of([last]))
            if number % (length // 10) == 0:
                times.append(clock())
        await bob.say(to="everyone", view=View.of([last]))

    config = RunConfig(model="fake", mode=mode, leakage=leakage, repair=repair)
    return play(script, config=config), times


@pytest.mark.parametrize(("mode", "leakage"), WAYS)
def test_a_chain_may_be_as_long_as_a_game(mode: Mode, leakage: Leakage) -> None:
    played, _ = chain(400, mode, leakage)
    last = played.entries[-1] if played.entries[-1].message.kind == "decode" else None
    [said] = played.said("bob")
    assert last is None or last.message.parents == said.parents
    record = next(e.own for e in played.entries if e.message.id == "bob.0")
    assert record is not None
    assert len(record.cone) == 401
    cones = Cones(played.entries)
    assert not cones.faults
    assert cones.cones[record.id] == record.cone == {"bob.0", *(f"alice.{n}" for n in range(400))}


@pytest.mark.parametrize("repair", ["full", "first-k:2"])
@pytest.mark.slow
def test_a_repaired_chain_may_be_long_too(repair: str) -> None:
    played, _ = chain(400, "choreographed", "enforce", repair)
    assert played.said("bob")


class Work:
    """A clock that counts the function calls of this thread, including built-in functions."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> Work:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def __call__(self) -> float:
        return self.calls

    def _note(self, frame: Any, event: str, argument: Any) -> None:
        self.calls += event in ("call", "c_call")


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "leakage"), WAYS)
def test_the_work_of_a_message_does_not_grow_with_the_chain(mode: Mode, leakage: Leakage) -> None:
    with Work() as work:
        _, shown = chain(1_000, mode, leakage, clock=work)
    spent = [after - before for before, after in pairwise(shown)]
    assert max(spent[1:]) <= 1.1 * min(spent[1:])


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "leakage"), WAYS)
def test_ten_thousand_take_as_long_each_as_a_thousand(mode: Mode, leakage: Leakage) -> None:
    played, times = chain(10_000, mode, leakage)
    assert len(played.entries) == 10_001
    spent = [after - before for before, after in pairwise(times)]
    assert min(spent[-4:]) < 4 * min(spent[:4])
