"""The loop: what is coalesced, what fails alone, and what is left behind, which is nothing."""

import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agentcho import Choreographer, Decode, Prefill, Sampling
from agentcho.choreographer import Request, Result
from agentcho.errors import EngineClosed, EngineFailed, NotYetAvailable, SamplingFailed, UnknownEncoding
from agentcho.request import StepResult
from agentcho.testing import FakeEngine

from .conftest import Play


def speech(words: int, seed: int = 0) -> Request:
    """A decode of that many words."""
    return Request((Decode(sampling=Sampling(max_tokens=words, seed=seed)),))


def talker(words: int = 6) -> FakeEngine:
    """Says `words` words each time."""
    return FakeEngine(lambda call, prompt: "word " * words)


def test_what_arrives_together_runs_together(play: Play) -> None:
    engine = talker()

    async def work() -> None:
        async with Choreographer(engine) as c:
            await c.turns.together(*(c.run(speech(4)) for _ in range(5)))

    play(work)
    assert [len(batch) for batch in engine.batches] == [5] * 5


def test_six_agents_that_speak_three_times_take_the_steps_of_the_longest(play: Play) -> None:
    engine = talker(9)

    async def agent(c: Choreographer, words: int) -> None:
        for _ in range(3):
            await c.run(speech(words))

    async def work() -> None:
        async with Choreographer(engine) as c:
            await c.turns.together(*(agent(c, words) for words in range(3, 9)))

    play(work)
    longest = 3 * (8 + 1)
    assert engine.steps == longest


def test_a_task_that_only_computes_between_its_turns_is_waited_for(play: Play) -> None:
    """Counted, not timed: the other's second turn joins, though it takes many rounds of the loop to submit it."""
    engine = talker(2)

    async def slow(c: Choreographer) -> None:
        await c.run(speech(2))
        for _ in range(2):
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.lowlevel.checkpoint)
        await c.run(speech(2))

    async def quick(c: Choreographer) -> None:
        for _ in range(2):
            await c.run(speech(2))

    async def work() -> None:
        async with Choreographer(engine) as c:
            await c.turns.together(*(c.turns.together(quick(c)) for _ in range(3)), quick(c))

    play(work)
    assert engine.steps == 2 * 3
    assert {len(batch) for batch in engine.batches} == {4}


def test_an_await_of_something_else_holds_nobody_up(play: Play) -> None:
    engine = talker(3)

    async def work() -> None:
        said = anyio.Event()

        async def waits(c: Choreographer) -> None:
            await said.wait()
            await c.run(speech(3))

        async def speaks(c: Choreographer) -> None:
            await c.run(speech(3))
            said.set()

        async with Choreographer(engine) as c:
            await c.turns.together(waits(c), speaks(c))

    play(work)
    assert engine.steps == 4 + 4


def test_tasks_of_a_raw_group_are_served_too(play: Play) -> None:
    engine = talker(3)

    async def work() -> None:
        async with Choreographer(engine) as c:

            async def agent() -> None:
                async with anyio.create_task_group() as group:
                    for _ in range(3):
                        group.start_soon(c.run, speech(3))
                await c.run(speech(3))

            await c.turns.run(agent())

    play(work)
    assert engine.steps == 4 + 4
    assert len(engine.batches[0]) == 3


def nothing_left(engine: FakeEngine) -> bool:
    return engine.idle and engine.rows == 0 and engine.pages == 0


def test_a_cancelled_request_frees_its_row_at_the_next_step(play: Play) -> None:
    engine = talker(50)
    alive: list[int] = []

    async def work() -> None:
        async with Choreographer(engine) as c:
            with anyio.CancelScope() as scope:

                def first(text: str) -> None:
                    scope.cancel()

                await c.run(Request(speech(50).calls, on_token=first))
            assert scope.cancelled_caught
            await c.run(speech(2))
            alive.append(engine.rows)

    play(work)
    assert alive == [0]
    assert engine.steps <= 6
    assert nothing_left(engine)


def test_a_deadline_that_has_passed_is_a_cancellation(play: Play) -> None:
    engine = talker()

    async def work() -> None:
        async with Choreographer(engine) as c:
            with anyio.CancelScope(deadline=-1) as scope:
                await c.run(speech(4))
            assert scope.cancelled_caught

    play(work)
    assert nothing_left(engine)


class Blocking(FakeEngine):
    """Stops inside its `at`-th step until it is let go."""

    def __init__(self, at: int) -> None:
        super().__init__(lambda call, prompt: "a b c d")
        self.at, self.inside, self.go = at, threading.Event(), threading.Event()

    def step(self) -> StepResult:
        if self.steps + 1 == self.at:
            self.inside.set()
            assert self.go.wait(10)
        return super().step()


@pytest.mark.parametrize("at", [1, 2, 4, 5])
def test_a_cancellation_while_the_engine_works_leaves_nothing(play: Play, at: int) -> None:
    engine = Blocking(at)

    async def work() -> None:
        async with Choreographer(engine) as c, anyio.create_task_group() as group:
            group.start_soon(c.run, Request((Prefill("one"), *speech(4).calls)))
            assert await anyio.to_thread.run_sync(engine.inside.wait, 10)
            group.cancel_scope.cancel()
            engine.go.set()

    play(work)
    assert nothing_left(engine)


def outcomes(c: Choreographer, *requests: Request) -> Callable[[], Any]:
    """Runs requests side by side; what each came to, errors as values."""

    async def one(request: Request) -> Result | Exception:
        try:
            return await c.run(request)
        except Exception as error:
            return error

    async def all_() -> list[Any]:
        return await c.turns.together(*(one(request) for request in requests))

    return all_


def test_a_failing_request_fails_its_submitter_alone(play: Play) -> None:
    engine = FakeEngine(faulty=lambda call: SamplingFailed("test") if call.header == "bad" else None)
    wrong = Request((Prefill("x"), Decode(parents=[999])))
    fails = Request((Prefill("y"), Decode("bad")))

    async def work() -> list[Any]:
        async with Choreographer(engine) as c:
            return list(await outcomes(c, wrong, fails, speech(9))())

    first, second, third = play(work)
    assert isinstance(first, UnknownEncoding)
    assert isinstance(second, SamplingFailed)
    assert third.made[-1].words.stopped == "stop"
    assert nothing_left(engine)


def test_an_engine_error_reaches_all_in_the_step_and_the_loop_goes_on(play: Play) -> None:
    engine = talker(3)

    async def work() -> tuple[list[Any], Result]:
        async with Choreographer(engine) as c:
            kept = await c.run(Request((Prefill("kept"),)))
            engine.broken = RuntimeError("out of memory")
            failed = await outcomes(c, speech(3), speech(2))()
            return failed, await c.run(Request((Decode(parents=[kept.made[0].id]),)))

    failed, after = play(work)
    assert [type(error) for error in failed] == [EngineFailed, EngineFailed]
    assert "out of memory" in str(failed[0])
    assert len(after.made[0].receipt.context) == 1
    assert nothing_left(engine)


def test_shutdown_tells_those_who_wait_and_leaves_nothing(play: Play) -> None:
    engine = talker(50)
    told: list[Exception] = []

    async def work() -> None:
        async def waits(c: Choreographer, begun: anyio.Event) -> None:
            try:
                await c.run(Request(speech(50).calls, on_token=lambda text: begun.set()))
            except EngineClosed as error:
                told.append(error)

        async with anyio.create_task_group() as group, Choreographer(engine) as c:
            begun = anyio.Event()
            group.start_soon(waits, c, begun)
            await begun.wait()
        with pytest.raises(EngineClosed):
            await c.run(speech(1))

    play(work)
    assert len(told) == 1
    assert nothing_left(engine)


def test_an_error_in_the_body_comes_out_and_leaves_nothing(play: Play) -> None:
    engine = talker()

    async def work() -> None:
        async with Choreographer(engine) as c:
            await c.run(Request((Prefill("kept"),)))
            raise LookupError("mine")

    with pytest.raises((LookupError, ExceptionGroup)) as caught:
        play(work)
    assert "mine" in repr(caught.value)
    assert nothing_left(engine)


def test_what_is_released_is_freed_while_others_go_on(play: Play) -> None:
    engine = talker(3)

    async def work() -> int:
        async with Choreographer(engine) as c:
            kept = await c.run(Request((Prefill("kept"),)))
            c.release([kept.made[0].id])
            result = await c.run(speech(2))
            pages = engine.pages
            c.release([result.made[0].id])
            return pages

    assert play(work) == 1
    assert nothing_left(engine)


def test_the_order_of_arrival_does_not_show(play: Play) -> None:
    """Two tasks that run in either order give the same batches: requests are sorted by what they are."""

    def batches(order: list[int]) -> list[tuple[int, ...]]:
        engine = talker(2)

        async def work() -> None:
            async with Choreographer(engine) as c:
                await c.turns.together(*(c.run(Request(speech(n + 1).calls, (n,))) for n in order))

        play(work)
        return engine.batches

    assert batches([0, 1, 2]) == batches([2, 0, 1])


def test_what_comes_later_is_refused_before_anything_runs() -> None:
    for leakage in ("enforce", "deny"):
        with pytest.raises(NotYetAvailable, match=leakage):
            Choreographer(FakeEngine(), "choreographed", leakage)
    Choreographer(FakeEngine(), "baseline", "enforce")
