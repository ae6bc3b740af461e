"""Cancellation, failure and shutdown: who is notified, and that no row and no page is left behind."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agentcho import Choreographer, Decode, Prefill, Sampling
from agentcho.choreography.requests import Request, RequestResult
from agentcho.errors import CallbackFailed, CallFailed, EngineClosed, EngineFailed, UnknownEncoding
from agentcho.testing import FakeEngine

from .stage import Clock, Interrupted, Play, empty, nothing_left, speech, talker

WORDS = 4
WHOLE = Request((Prefill("one"), Decode(sampling=Sampling(max_tokens=WORDS))))
WRONG = Request((Prefill("x"), Decode(parents=[999])))
STEPS = range(1, WORDS + 2)


def test_a_cancelled_request_frees_its_row_at_the_next_step(play: Play) -> None:
    engine = talker(50)

    async def work() -> None:
        async with Choreographer(engine) as c:
            with anyio.CancelScope() as scope:
                await c.run(speech(50)._replace(on_token=lambda text: scope.cancel()))
            assert scope.cancelled_caught
            assert await empty(c, engine)

    play(work)
    assert engine.steps <= 3
    assert nothing_left(engine)


def test_a_deadline_that_has_passed_is_a_cancellation(play: Play) -> None:
    engine = talker()

    async def work() -> None:
        async with Choreographer(engine) as c:
            with anyio.move_on_after(-1) as scope:
                await c.run(speech(4))
            assert scope.cancelled_caught

    play(work)
    assert engine.steps == 0


@pytest.mark.parametrize("step", STEPS)
def test_a_time_out_in_the_midst_of_a_request_leaves_nothing(clock: Clock, step: int) -> None:
    engine = Interrupted(WORDS)
    engine.during[step] = lambda: clock.jump(60)

    async def work() -> None:
        async with Choreographer(engine) as c:
            with pytest.raises(TimeoutError), anyio.fail_after(30):
                await c.run(WHOLE)
            with anyio.fail_after(30):
                assert await empty(c, engine)

    clock.run(work)
    assert nothing_left(engine)


@pytest.mark.parametrize("on_done", [None, lambda result: None], ids=["alone", "with books"])
@pytest.mark.parametrize("step", STEPS)
def test_a_cancellation_while_the_engine_works_leaves_nothing(play: Play, step: int, on_done: Any) -> None:
    engine = Interrupted(WORDS)

    async def work() -> None:
        async with Choreographer(engine) as c:
            with anyio.CancelScope() as scope:
                engine.during[step] = scope.cancel
                await c.run(WHOLE._replace(on_done=on_done))
            assert scope.cancelled_caught
            assert await empty(c, engine)
            assert (await c.run(speech(2))).made

    play(work)
    assert nothing_left(engine)


@pytest.mark.parametrize("taken", [False, True])
def test_a_cancellation_just_as_the_result_comes_leaves_it_to_its_books_alone(play: Play, taken: bool) -> None:
    """The submitter's scope is cancelled during the delivery of the step that ends its request."""
    engine, books = talker(WORDS), list[RequestResult]()

    async def work() -> None:
        async with Choreographer(engine) as c:
            scope = anyio.CancelScope()

            async def cancelled() -> None:
                with scope:
                    await c.run(WHOLE._replace(order=(1,), on_done=books.append if taken else None))
                assert scope.cancelled_caught

            async def cancels() -> None:
                result = await c.run(speech(WORDS, 0)._replace(on_done=lambda result: scope.cancel()))
                c.release([result.made[0].id])

            await c.tasks.together(cancelled(), cancels())
            held = [made.id for result in books for made in result.made]
            assert len(held) == (2 if taken else 0)
            c.release(held)
            assert await empty(c, engine)

    play(work)
    assert nothing_left(engine)


@pytest.mark.parametrize("then", [speech(2), WRONG], ids=["on", "wrong again"])
def test_who_was_cancelled_is_not_woken_by_what_is_said_of_its_request(play: Play, then: Request) -> None:
    """The refusal arrives after the task has moved on: it must not count as awake, or no step would start."""

    class Slow(FakeEngine):
        def submit(self, calls: Any, turn: Any = None) -> Any:
            if scopes:
                anyio.from_thread.run_sync(scopes.pop().cancel)
            return super().submit(calls, turn)

    engine, scopes = Slow(), list[anyio.CancelScope]()

    async def agent(c: Choreographer) -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await c.run(WRONG)
        try:
            await c.run(then)
        except UnknownEncoding:
            assert then is WRONG

    async def work() -> None:
        async with Choreographer(engine) as c:
            with anyio.fail_after(10):
                await c.tasks.run(agent(c))

    play(work)
    assert nothing_left(engine)


# -- failures ----------------------------------------------------------------------------------------------


def outcomes(c: Choreographer, *requests: Request) -> Awaitable[list[Any]]:
    """Runs requests concurrently; returns their results, errors as values."""

    async def one(request: Request) -> RequestResult | Exception:
        try:
            return await c.run(request)
        except Exception as error:
            return error

    return c.tasks.together(*(one(request) for request in requests))


def test_a_failing_request_fails_its_submitter_alone(play: Play) -> None:
    engine = FakeEngine(faulty=lambda call: CallFailed("test") if call.header == "bad" else None)
    fails = Request((Prefill("y"), Decode("bad")))

    async def work() -> None:
        async with Choreographer(engine) as c:
            first, second, third = await outcomes(c, WRONG, fails, speech(9))
            assert isinstance(first, UnknownEncoding)
            assert isinstance(second, CallFailed)
            c.release([made.id for made in third.made])
            assert await empty(c, engine)

    play(work)


def test_a_request_that_fails_late_gives_up_what_was_made_for_it(play: Play) -> None:
    engine = FakeEngine(faulty=lambda call: CallFailed("late") if engine.steps > 3 else None)
    words = tuple(engine.framing.content.encode("a b c d e f"))

    async def work() -> None:
        async with Choreographer(engine) as c:
            with pytest.raises(CallFailed, match="late"):
                await c.run(Request((Prefill("long since made"), Decode(forced=words))))
            assert engine.steps == 4
            assert await empty(c, engine)

    play(work)


@pytest.mark.parametrize("at", STEPS)
def test_an_engine_error_reaches_all_in_the_step_and_the_loop_goes_on(play: Play, at: int) -> None:
    engine = Interrupted(WORDS)

    async def work() -> None:
        async with Choreographer(engine) as c:
            kept = (await c.run(Request((Prefill("kept"),)))).made[0].id

            def fail() -> None:
                engine.broken = RuntimeError("out of memory")

            engine.during[engine.steps + at] = fail
            failed = await outcomes(c, WHOLE, speech(WORDS))
            assert [type(error) for error in failed] == [EngineFailed, EngineFailed]
            assert "out of memory" in str(failed[0])
            after = await c.run(Request((Decode(parents=[kept]),)))
            assert after.made[0].receipt.context[0].id == kept
            c.release([kept, after.made[0].id])
            assert await empty(c, engine)

    play(work)
    assert nothing_left(engine)


# -- shutdown ----------------------------------------------------------------------------------------------


def shut(play: Play, engine: FakeEngine, leave: Callable[[Choreographer, anyio.Event], Awaitable[None]]) -> int:
    """Leave a choreographer while requests of two outside tasks wait; returns how many tasks were told."""
    told: list[Exception] = []

    async def waits(c: Choreographer, request: Request, begun: anyio.Event) -> None:
        try:
            await c.run(request._replace(on_token=lambda text: begun.set()))
        except EngineClosed as error:
            told.append(error)

    async def work() -> None:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                try:
                    async with Choreographer(engine) as c:
                        begun = anyio.Event()
                        for request in (speech(50), Request((Prefill("one"), Decode()))):
                            group.start_soon(waits, c, request, begun)
                        await leave(c, begun)
                except LookupError:
                    pass
            with pytest.raises(EngineClosed):
                await c.run(speech(1))
            c.release([1, 2, 3])

    play(work)
    assert nothing_left(engine)
    return len(told)


@pytest.mark.parametrize("rounds", range(16))
def test_a_shutdown_at_any_moment_tells_those_who_wait(play: Play, rounds: int) -> None:
    async def leave(c: Choreographer, begun: anyio.Event) -> None:
        for _ in range(rounds):
            await anyio.lowlevel.checkpoint()

    assert shut(play, talker(50), leave) == 2


def test_a_shutdown_in_the_midst_tells_those_who_wait(play: Play) -> None:
    async def leave(c: Choreographer, begun: anyio.Event) -> None:
        await begun.wait()

    assert shut(play, talker(50), leave) == 2


def test_an_error_in_the_body_is_a_shutdown_too(play: Play) -> None:
    async def leave(c: Choreographer, begun: anyio.Event) -> None:
        await begun.wait()
        raise LookupError

    assert shut(play, talker(50), leave) == 2


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_shutdown_while_the_engine_works_waits_for_it_and_leaves_nothing(play: Play, step: int) -> None:
    engine, left = Interrupted(50), list[anyio.Event]()
    engine.during[step] = lambda: left[0].set()

    async def leave(c: Choreographer, begun: anyio.Event) -> None:
        left.append(anyio.Event())
        await left[0].wait()

    assert shut(play, engine, leave) == 2
    assert engine.steps == step


@pytest.mark.parametrize("rounds", range(12))
def test_a_cancellation_from_outside_at_any_moment_leaves_nothing(play: Play, rounds: int) -> None:
    engine = talker(50)

    async def work() -> None:
        async with anyio.create_task_group() as outside:

            async def inside() -> None:
                async with Choreographer(engine) as c:
                    await c.tasks.together(c.run(speech(50)), c.run(WHOLE))

            outside.start_soon(inside)
            for _ in range(rounds):
                await anyio.lowlevel.checkpoint()
            outside.cancel_scope.cancel()

    play(work)
    assert nothing_left(engine)


def test_an_error_in_the_body_comes_out_as_it_is_and_leaves_nothing(play: Play) -> None:
    engine = talker()

    async def work() -> None:
        async with Choreographer(engine) as c:
            await c.run(Request((Prefill("kept"),)))
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        play(work)
    assert nothing_left(engine)


def test_a_callback_that_raises_fails_its_request_alone(play: Play) -> None:
    engine = talker()

    def full(anything: Any) -> None:
        raise OSError("disk full")

    async def work() -> None:
        async with Choreographer(engine) as c:
            for request in (WHOLE._replace(on_token=full), WHOLE._replace(on_done=full)):
                failed, fine = await outcomes(c, request, speech(50))
                assert isinstance(failed, CallbackFailed)
                assert isinstance(failed.__cause__, OSError)
                c.release([made.id for made in fine.made])
                assert await empty(c, engine)

    play(work)
    assert nothing_left(engine)
