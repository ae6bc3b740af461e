"""`agentcho.arun`: several concurrent runs on one engine in the running event loop; each ends independently."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import agentcho
from agentcho.errors import AudienceError, EngineBusy
from agentcho.games.runs import hosting
from agentcho.records.record import SavedRun
from agentcho.testing import FakeEngine

BACKENDS = ("asyncio", "trio")
DILEMMA = "prisoners-dilemma"


class Waits(agentcho.Scenario):
    """An agent speaks. If `began` is given, sets it, waits for `go` (None: forever), and lets the agent speak again."""

    name = "waits"

    def __init__(self, began: anyio.Event | None = None, go: anyio.Event | None = None) -> None:
        super().__init__()
        self._began, self._go = began, go

    async def play(self, game: agentcho.Game) -> Any:
        ann = game.cast(agentcho.Agent, name="ann")
        await ann.say(to="everyone")
        if self._began is not None:
            self._began.set()
            await (anyio.sleep_forever() if self._go is None else self._go.wait())
            await ann.say(to="everyone")
        return self.Outcome()


class Stray(Waits):
    """Addresses an agent that does not exist."""

    name = "stray"

    async def play(self, game: agentcho.Game) -> Any:
        await game.cast(agentcho.Agent, name="ann").say(to="nobody")


@pytest.fixture(params=BACKENDS)
def loop(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return lambda work: anyio.run(work, backend=request.param)


def words(played: agentcho.Played) -> list[tuple[str, ...]]:
    return [tuple(sorted(f"{m.id} {m.text}" for m in game.messages())) for game in played.games]


@pytest.mark.slow
def test_runs_at_once_on_one_engine_share_its_steps_and_say_what_they_say_alone(loop: Callable[..., Any]) -> None:
    engine = FakeEngine()
    alone = {seed: agentcho.run(DILEMMA, engine=engine, games=2, seed=seed, display="none") for seed in range(3)}
    found = dict[int, agentcho.Played]()

    async def main() -> None:
        async def one(seed: int) -> None:
            found[seed] = await agentcho.arun(DILEMMA, engine=engine, games=2, seed=seed)

        async with anyio.create_task_group() as group:
            for seed in range(3):
                group.start_soon(one, seed)

    before = engine.steps
    loop(main)
    steps = engine.steps - before
    assert {seed: words(played) for seed, played in found.items()} == {
        seed: words(each) for seed, each in alone.items()
    }
    assert steps < 0.6 * sum(each.steps or 0 for each in alone.values())
    assert max(played.steps or 0 for played in found.values()) <= steps
    assert engine.owner.words == "nobody"


def test_a_cancellation_ends_one_run_and_its_record_says_so(loop: Callable[..., Any], tmp_path: Path) -> None:
    engine = FakeEngine()
    left = list[agentcho.Played]()

    async def main() -> None:
        began = anyio.Event()

        async def other() -> None:
            await began.wait()
            left.append(await agentcho.arun(DILEMMA, engine=engine, out=tmp_path / "other"))

        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                group.start_soon(other)
                async with anyio.create_task_group() as inner:
                    inner.start_soon(_cancel_after, began, scope)
                    await agentcho.arun(Waits(began), engine=engine, out=tmp_path / "one")
        assert scope.cancelled_caught
        again = await agentcho.arun(Waits(), engine=engine)
        assert len(again.messages()) == 1

    loop(main)
    stopped = agentcho.load("last", out=tmp_path / "one")
    assert (stopped.status, len(stopped.messages())) == ("interrupted", 1)
    assert (left[0].status, len(left[0].games)) == ("done", 1)
    assert engine.owner.words == "nobody"
    assert engine.fullness.used == 1, "the token that every prompt begins with is kept"


async def _cancel_after(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def test_the_first_may_go_while_others_play_on(loop: Callable[..., Any]) -> None:
    """The run that opened the engine is cancelled; a later one plays to its end."""
    engine, found = FakeEngine(), list[agentcho.Played]()

    async def main() -> None:
        first, second, gone = anyio.Event(), anyio.Event(), anyio.Event()

        async def later() -> None:
            await first.wait()
            found.append(await agentcho.arun(Waits(second, gone), engine=engine))

        async with anyio.create_task_group() as group:
            group.start_soon(later)
            with anyio.CancelScope() as scope:
                group.start_soon(_cancel_after, second, scope)
                await agentcho.arun(Waits(first), engine=engine)
            gone.set()

    loop(main)
    (game,) = found[0].games
    assert (game.error, [m.author for m in game.messages()]) == (None, ["ann", "ann"])


def test_errors_come_out_of_their_own_run_alone(loop: Callable[..., Any]) -> None:
    engine = FakeEngine()
    found = dict[str, Any]()

    async def main() -> None:
        async def one(name: str, scenario: Any, **how: Any) -> None:
            try:
                found[name] = await agentcho.arun(scenario, engine=engine, **how)
            except AudienceError as error:
                found[name] = error

        async with anyio.create_task_group() as group:
            group.start_soon(one, "stray", Stray())
            group.start_soon(one, "good", Waits())
            group.start_soon(lambda: one("many", Stray(), games=2))

    loop(main)
    assert isinstance(found["stray"], AudienceError)
    assert found["good"].status == "done"
    assert [*found["many"].errors] == [0, 1]
    with pytest.raises(agentcho.AgentchoError, match="2 of 2 games"):
        found["many"].check()


def test_who_has_the_engine_otherwise_is_named(loop: Callable[..., Any]) -> None:
    engine = FakeEngine()

    async def main() -> None:
        async with agentcho.Choreographer(engine):
            with pytest.raises(EngineBusy, match="a choreographer opened"):
                await agentcho.arun(Waits(), engine=engine)
        began = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agentcho.arun(Waits(began), engine=engine))
            await began.wait()
            with pytest.raises(EngineBusy):
                await agentcho.arun(Waits(), engine=engine, others={"small": FakeEngine()})
            with pytest.raises(EngineBusy):
                await anyio.to_thread.run_sync(lambda: agentcho.run(Waits(), engine=engine, display="none"))
            group.cancel_scope.cancel()
        assert (await agentcho.arun(Waits(), engine=engine)).status == "done"

    loop(main)


def test_models_are_loaded_beside_the_event_loop(loop: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = list[int]()

    async def main() -> None:
        loading, home = anyio.Event(), anyio.lowlevel.current_token()

        def load(*_: Any, **__: Any) -> FakeEngine:
            anyio.from_thread.run_sync(loading.set, token=home)
            return FakeEngine()

        monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", load)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agentcho.arun(Waits()))
            await loading.wait()
            ticks.append(1)

    loop(main)
    assert ticks == [1]


@pytest.mark.slow
def test_at_once_is_of_each_run(loop: Callable[..., Any], tmp_path: Path) -> None:
    engine = FakeEngine()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for at_once in (1, 3):
                how: dict[str, Any] = {"games": 5, "at_once": at_once, "out": tmp_path / str(at_once)}
                group.start_soon(lambda how: agentcho.arun(DILEMMA, engine=engine, **how), how)

    loop(main)
    for at_once in (1, 3):
        (record,) = (tmp_path / str(at_once)).iterdir()
        info = SavedRun(record).info
        assert (info.at_once, info.most) == (at_once, at_once)


def test_nothing_keeps_an_engine_that_nobody_plays_on() -> None:
    engines, before = [FakeEngine()], set(threading.enumerate())
    gone = weakref.ref(engines[0])

    async def main() -> None:
        await asyncio.gather(*(agentcho.arun(Waits(), engine=each) for each in engines * 3))
        assert not hosting.HOSTS.get()
        engines.clear()

    anyio.run(main)
    for thread in set(threading.enumerate()) - before:  # of the event loop: each holds its last work until it ends
        thread.join()
    gc.collect()
    assert gone() is None


def test_tasks_of_asyncio_may_be_cancelled_one_by_one(tmp_path: Path) -> None:
    engine = FakeEngine()

    async def main() -> None:
        began = anyio.Event()
        first = asyncio.create_task(agentcho.arun(Waits(began), engine=engine, out=tmp_path))
        await began.wait()
        second = asyncio.create_task(agentcho.arun(DILEMMA, engine=engine, games=2))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await second).status == "done"

    asyncio.run(main())
    assert agentcho.load("last", out=tmp_path).status == "interrupted"
    assert engine.owner.words == "nobody"


def test_an_interrupt_in_a_game_ends_its_run_and_comes_out(tmp_path: Path) -> None:
    class Tired(Waits):
        async def play(self, game: agentcho.Game) -> Any:
            await super().play(game)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(agentcho.arun(Tired(), engine=FakeEngine(), out=tmp_path))
    assert agentcho.load("last", out=tmp_path).status == "interrupted"


def test_the_options_of_a_run_hold_on_engines_that_runs_share(loop: Callable[..., Any]) -> None:
    given = list[int | None]()

    class Noted(FakeEngine):
        def take_place(self, place: int, prefill_budget: int | None = None) -> None:
            given.append(prefill_budget)
            super().take_place(place, prefill_budget)

    loop(lambda: agentcho.arun(Waits(), engine=Noted(), prefill_budget=7))
    assert given == [7, None]
