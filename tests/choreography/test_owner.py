"""An engine has one owner: a second one is refused at once and told about the first; a closed one holds nothing."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest

from agentcho.agent import Agent
from agentcho.choreography.choreographer import Choreographer
from agentcho.choreography.requests import Request
from agentcho.errors import EngineBusy, EngineClosed, RequestError, UnknownEncoding
from agentcho.games.play.game import Game
from agentcho.protocol.call import Decode, Prefill
from agentcho.protocol.ids import GivenId
from agentcho.testing import FakeEngine, play
from tests.choreography.stage import nothing_left

WORK = Request((Prefill("hello"),))
CALLS: dict[str, Callable[[FakeEngine], Any]] = {
    "submit": lambda engine: engine.submit([Prefill("hello")]),
    "step": lambda engine: engine.step(),
    "cancel": lambda engine: engine.cancel([1]),
    "release": lambda engine: engine.release([1]),
    "swap_out": lambda engine: engine.swap_out([1]),
    "close": lambda engine: engine.close(),
}


def on_both(work: Callable[[], Awaitable[None]]) -> None:
    for backend in ("asyncio", "trio"):
        anyio.run(work, backend=backend)


def test_a_second_choreographer_is_refused_and_told_of_the_first() -> None:
    async def work() -> None:
        engine = FakeEngine()
        async with Choreographer(engine) as first:
            with pytest.raises(EngineBusy, match=r"a choreographer opened at .*test_owner.py:\d+ in thread MainThread"):
                async with Choreographer(engine):
                    pass
            await first.run(WORK)
        assert nothing_left(engine)
        async with Choreographer(engine) as second:
            await second.run(WORK)

    on_both(work)


def test_one_that_is_open_is_not_opened_again() -> None:
    async def work() -> None:
        engine = FakeEngine()
        async with Choreographer(engine) as choreographer:
            with pytest.raises(EngineBusy, match="a choreographer opened at"):
                async with choreographer:
                    pass
            await choreographer.run(WORK)
        assert nothing_left(engine)
        async with choreographer:
            await choreographer.run(WORK)

    on_both(work)


def test_one_that_is_open_is_called_from_its_own_loop_alone() -> None:
    async def work() -> None:
        async with Choreographer(engine) as choreographer:

            async def elsewhere() -> None:
                with anyio.fail_after(3):
                    await choreographer.run(WORK)

            def aside() -> None:
                calls: list[Callable[[], Any]] = [
                    lambda: anyio.run(elsewhere),
                    lambda: choreographer.release([1]),
                    lambda: choreographer.swap_out([1]),
                    lambda: choreographer.offer(None, lambda: None),
                ]
                for call in calls:
                    with pytest.raises(EngineBusy, match=r"a choreographer opened at .*test_owner.py:\d+ in thread"):
                        call()

            await anyio.to_thread.run_sync(aside)
            await choreographer.run(WORK)

    engine = FakeEngine()
    on_both(work)
    assert nothing_left(engine)


class Meddler:
    """A guard that calls the engine that asks it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call

    def admit(self, *_: object) -> None:
        """Makes the call, whose error refuses."""
        self._call()


@pytest.mark.parametrize("name", CALLS)
def test_what_a_call_brings_with_it_calls_no_engine_from_the_midst_of_a_step(name: str) -> None:
    def ids() -> Iterator[int]:
        yield 5
        CALLS[name](engine)

    engine = FakeEngine()

    async def work() -> None:
        async with Choreographer(engine) as choreographer:
            asked = Prefill("x", guard=Meddler(lambda: CALLS[name](engine)))
            with pytest.raises(EngineBusy, match="the call that is running this code"):
                await choreographer.run(Request((asked,)))
            with pytest.raises(RequestError, match="EngineBusy"):
                await choreographer.run(Request((Prefill("", tokens=ids()),)))  # type: ignore[arg-type]
            await choreographer.run(WORK)

    on_both(work)
    assert nothing_left(engine)


@pytest.mark.parametrize("name", CALLS)
def test_a_direct_call_beside_a_choreographer_is_refused_from_any_thread(name: str) -> None:
    engine = FakeEngine()

    def call() -> None:
        with pytest.raises(EngineBusy, match="a choreographer opened at"):
            CALLS[name](engine)

    async def work() -> None:
        async with Choreographer(engine) as choreographer:
            call()
            await anyio.to_thread.run_sync(call)
            await choreographer.run(WORK)

    on_both(work)
    assert nothing_left(engine)


def test_an_agent_may_not_call_the_engine_that_it_speaks_on() -> None:
    engine = FakeEngine()

    class Sly(Agent):
        """Bypasses the game."""

    async def script(game: Game) -> None:
        await game.cast(Sly, "sly").say()
        engine.submit([Prefill("mine")])

    with pytest.raises(EngineBusy):
        play(script, engine=engine)
    assert nothing_left(engine)


def test_of_two_threads_the_second_is_refused_while_the_first_is_inside() -> None:
    inside, done = threading.Event(), threading.Event()

    def reply(call: Decode, prompt: str) -> str:
        inside.set()
        done.wait(10)
        return "yes"

    engine = FakeEngine(reply)
    first = threading.Thread(target=lambda: engine.submit([Decode()]), name="first")
    first.start()
    inside.wait(10)
    with pytest.raises(EngineBusy, match=r"a direct call of submit at .*test_owner.py:\d+ in thread first"):
        engine.step()
    with pytest.raises(EngineBusy, match="a direct call of submit"):
        anyio.run(opened, engine)
    done.set()
    first.join()
    assert engine.step().spoken


async def opened(engine: FakeEngine) -> None:
    async with Choreographer(engine) as choreographer:
        await choreographer.run(WORK)


def test_a_choreographer_does_not_step_what_was_submitted_directly() -> None:
    engine = FakeEngine()
    [id] = engine.submit([Prefill("mine")])
    with pytest.raises(EngineBusy, match="calls that were submitted directly"):
        anyio.run(opened, engine)
    assert engine.step().finished == (id,)
    anyio.run(opened, engine)
    assert engine.message(id).text == "mine"


@pytest.mark.parametrize("ending", ["error", "cancelled"])
def test_ownership_ends_with_the_choreographer_however_that_ends(ending: str) -> None:
    async def work() -> None:
        engine = FakeEngine()
        with anyio.CancelScope() as scope:
            try:
                async with Choreographer(engine) as choreographer:
                    await choreographer.run(WORK)
                    if ending == "error":
                        raise ValueError(ending)
                    scope.cancel()
                    await anyio.sleep_forever()
            except ValueError:
                pass
        assert nothing_left(engine)
        await opened(engine)

    on_both(work)


def test_one_whose_loop_died_holds_nothing_and_leaves_nothing() -> None:
    engine = FakeEngine()

    async def abandoned() -> None:
        choreographer = Choreographer(engine)
        await choreographer.__aenter__()
        await choreographer.run(WORK)

    loop = asyncio.new_event_loop()
    task = loop.create_task(abandoned())
    loop.run_until_complete(task)
    assert engine.pages == 1
    with pytest.raises(EngineBusy):
        engine.step()
    for left in asyncio.all_tasks(loop):
        left.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    del task, left
    gc.collect()
    anyio.run(opened, engine)
    assert nothing_left(engine)


def test_a_closed_engine_says_so_and_a_second_close_does_nothing() -> None:
    with FakeEngine() as engine:
        [id] = engine.submit([Prefill("hello")])
        engine.step()
    engine.close()
    asked: list[Callable[[], Any]] = [
        lambda: engine.submit([Prefill("hello")]),
        engine.step,
        lambda: engine.message(id),
        lambda: engine.release([id]),
        lambda: anyio.run(opened, engine),
    ]
    for ask in asked:
        with pytest.raises(EngineClosed, match="the engine is closed"):
            ask()


def test_ids_of_another_engine_are_refused() -> None:
    mine, other = FakeEngine(), FakeEngine()
    [id] = mine.submit([Prefill("mine")])
    [foreign] = other.submit([Prefill("other")])
    other.step()
    assert id == foreign == 1
    mine.cancel([foreign])
    mine.step()
    for ask in (mine.message, mine.receipt, lambda id: mine.release([id]), lambda id: mine.submit([Prefill("", [id])])):
        with pytest.raises(UnknownEncoding, match="belongs to another engine"):
            ask(foreign)
    assert mine.message(id).text == "mine"


def test_a_number_that_only_looks_like_an_id_is_unknown() -> None:
    engine = FakeEngine()
    engine.submit([Prefill("mine")])
    engine.step()
    for ask in (engine.message, lambda id: engine.release([id]), lambda id: engine.submit([Prefill("", [id])])):
        with pytest.raises(UnknownEncoding, match="belongs to another engine"):
            ask(GivenId(1))


def test_a_choreographer_holds_no_ids_of_another_engine() -> None:
    async def work() -> None:
        mine, other = FakeEngine(), FakeEngine()
        async with Choreographer(mine) as one, Choreographer(other) as two:
            made, foreign = (await one.run(WORK)).made[0].id, (await two.run(WORK)).made[0].id
            with pytest.raises(UnknownEncoding):
                one.release([foreign])
            one.release([made])

    on_both(work)


def test_who_is_interrupted_twice_in_the_midst_of_a_step_waits_for_its_end() -> None:
    """A second Ctrl-C cancels every task at once, including the one that waits for the step."""
    began, go_on = threading.Event(), threading.Event()

    class Slow(FakeEngine):
        def step(self, deterministic: bool = False) -> Any:
            began.set()
            go_on.wait(10)
            return super().step(deterministic)

    engine = Slow()

    async def talk() -> None:
        async with Choreographer(engine) as choreographer:
            await choreographer.run(WORK)

    async def work() -> None:
        talking = asyncio.create_task(talk())
        await asyncio.to_thread(began.wait, 10)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait({talking}, timeout=0.2)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await talking

    asyncio.run(work())
    assert engine.idle
    assert engine.owner.words == "nobody"
