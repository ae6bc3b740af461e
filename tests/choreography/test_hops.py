"""Hops to the thread of the engine: when one hop makes several steps, and that nobody can tell."""

from collections.abc import Callable
from math import inf
from typing import Any

import anyio
import pytest

from agentcho import Choreographer, Prefill
from agentcho.choreography import step_clock
from agentcho.choreography.requests import Request, Steps
from agentcho.choreography.step_clock import StepClock
from agentcho.protocol.call import SchedulingPriority, StepResult
from agentcho.testing import FakeEngine

from .stage import Interrupted, Play, nothing_left, speech, talker

WORDS = 20


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[StepClock]:
    """The clock of each hop so far. Time ends no hop."""
    made, hop = list[StepClock](), StepClock._hop

    def counted(clock: StepClock, *how: Any) -> Any:
        made.append(clock)
        return hop(clock, *how)

    monkeypatch.setattr(StepClock, "_hop", counted)
    monkeypatch.setattr(step_clock, "LONGEST", inf)
    return made


def test_steps_that_wake_nobody_share_a_hop(play: Play, hops: list[StepClock]) -> None:
    engine = talker(WORDS)

    async def work() -> None:
        async with Choreographer(engine) as c:
            await c.tasks.together(c.run(speech(WORDS)), c.run(speech(WORDS)))

    play(work)
    assert engine.steps == WORDS + 1
    assert len(hops) <= 4


@pytest.mark.parametrize("seconds", [0.0, inf])
def test_a_long_step_has_a_hop_of_its_own(
    seconds: float, play: Play, hops: list[StepClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = talker(WORDS)
    monkeypatch.setattr(step_clock, "LONGEST", seconds)

    async def work() -> None:
        async with Choreographer(engine) as c:
            await c.run(speech(WORDS))

    play(work)
    assert (len(hops) == engine.steps) is (seconds == 0)


@pytest.mark.parametrize("what", ["on_token", "on_thought"])
def test_what_a_user_listens_to_is_told_step_by_step(what: str, play: Play, hops: list[StepClock]) -> None:
    engine = talker(WORDS)

    async def work() -> None:
        async with Choreographer(engine) as c:
            listen: dict[str, Any] = {what: lambda text: None}
            await c.run(speech(WORDS)._replace(**listen))

    play(work)
    assert len(hops) == engine.steps


def steps_of(play: Play, clients: Callable[[Choreographer, Choreographer], list[Any]]) -> list[Steps]:
    """The steps of all requests of these clients of two engines with one clock, by their orders."""
    engines, found = (talker(9), talker(9)), dict[Any, Any]()

    async def work() -> None:
        async with Choreographer(engines[0]) as one, Choreographer(engines[1], place=1, name="b", beside=one) as other:
            asked = [client(found) for client in clients(one, other)]
            await one.tasks.together(*asked)

    play(work)
    assert all(map(nothing_left, engines))
    return [found[key] for key in sorted(found)]


def test_the_same_requests_come_to_the_same_steps_however_hops_are_divided(
    play: Play, hops: list[StepClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    def clients(one: Choreographer, other: Choreographer) -> list[Any]:
        async def client(number: int, found: dict[Any, Any]) -> None:
            for turn in range(3):
                c = (one, other)[(number + turn) % 2]
                request = speech(2 + (number * 5 + turn * 3) % 8, number, turn)
                result = await c.run(request)
                found[number, turn] = result.steps
                c.release(call.id for call in result.made)

        return [lambda found, number=number: client(number, found) for number in range(5)]

    together, shared = steps_of(play, clients), len(hops)
    monkeypatch.setattr(step_clock, "LONGEST", 0)
    assert steps_of(play, clients) == together
    assert shared < len(hops) - shared


def test_what_arrives_during_a_hop_joins_the_next_step(play: Play, hops: list[StepClock]) -> None:
    engine, late = Interrupted(WORDS), list[Steps | None]()

    async def work() -> None:
        async with Choreographer(engine) as c, anyio.create_task_group() as group:

            async def come() -> None:
                late.append((await c.run(speech(2))).steps)

            def call() -> None:
                group.start_soon(come)

            engine.during[6] = call
            await c.run(speech(WORDS))

    play(work)
    assert [steps[0] for steps in late if steps] == [7]
    assert len(hops) < engine.steps


def test_what_is_offered_during_a_hop_is_taken_after_the_step(play: Play, hops: list[StepClock]) -> None:
    engine, taken = Interrupted(WORDS), list[int]()

    async def work() -> None:
        async with Choreographer(engine) as c:

            def make() -> Request:
                taken.append(engine.steps)
                return Request((Prefill("later"),), turn=SchedulingPriority("0"))

            engine.during[6] = lambda: c.offer(c, make)
            await c.run(speech(WORDS))
            c.forget(c)

    play(work)
    assert taken == [6]
    assert len(hops) < engine.steps


def test_what_is_released_during_a_hop_is_freed_by_the_next_step(play: Play, hops: list[StepClock]) -> None:
    engine, pages = Interrupted(WORDS), list[int]()

    async def work() -> None:
        async with Choreographer(engine) as c:
            [kept] = (await c.run(Request((Prefill("kept for now"),)))).made
            engine.during[7] = lambda: c.release([kept.id])
            engine.during[8] = lambda: pages.append(engine.pages)
            await c.run(speech(WORDS))

    play(work)
    assert pages == [0]
    assert len(hops) < engine.steps


def test_what_is_made_in_the_same_step_wakes_its_tasks_together_whoever_is_cancelled_meanwhile(
    play: Play, hops: list[StepClock]
) -> None:
    one, other, order = talker(3), Interrupted(WORDS), list[str]()

    async def work() -> None:
        async with (
            Choreographer(one) as first,
            Choreographer(other, place=1, name="b", beside=first) as second,
            anyio.create_task_group() as group,
        ):

            async def ends() -> None:
                await first.run(speech(3))
                order.append(f"awake after step {other.steps}")

            async def stays() -> None:
                with anyio.CancelScope() as scope:
                    other.during[4] = lambda: scope.cancel()
                    await second.run(speech(WORDS))
                order.append("cancelled")

            group.start_soon(ends)
            group.start_soon(stays)

    play(work)
    assert order == ["cancelled", "awake after step 4"]


def test_an_error_of_a_watcher_ends_the_loop_and_not_whoever_is_cancelled(play: Play, hops: list[StepClock]) -> None:
    engine, ended = Interrupted(WORDS), list[bool]()

    def watch(step: object) -> None:
        if engine.steps >= 4:
            raise OSError("no space left")

    async def work() -> None:
        async with Choreographer(engine) as c:
            c.watchers.append(watch)
            with anyio.CancelScope() as scope:
                engine.during[6] = scope.cancel
                await c.run(speech(WORDS))
            ended.append(scope.cancelled_caught)

    with pytest.raises((OSError, ExceptionGroup)):
        play(work)
    assert ended == [True]
    assert nothing_left(engine)


def test_after_an_error_of_a_watcher_it_can_be_opened_again(play: Play, hops: list[StepClock]) -> None:
    engine, found = Interrupted(WORDS), list[int]()
    opened = Choreographer(engine)

    def watch(step: object) -> None:
        if engine.steps >= 4:
            raise OSError("no space left")

    async def fails() -> None:
        async with opened as c:
            c.watchers.append(watch)
            with anyio.CancelScope() as scope:
                engine.during[6] = scope.cancel
                await c.run(speech(WORDS))

    async def works() -> None:
        opened.watchers.clear()
        async with opened as c:
            [said] = (await c.run(speech(2))).made
            found.append(len(said.words.text.split()))

    with pytest.raises((OSError, ExceptionGroup)):
        play(fails)
    play(works)
    assert found == [2]


def test_an_error_of_a_watcher_of_one_engine_leaves_nothing_in_another(play: Play, hops: list[StepClock]) -> None:
    engine, other = Interrupted(WORDS), Interrupted(WORDS)

    def watch(step: object) -> None:
        raise OSError("no space left")

    async def work() -> None:
        async with Choreographer(engine) as first, Choreographer(other, place=1, name="b", beside=first) as second:
            first.watchers.append(watch)
            await first.tasks.together(first.run(speech(3)), second.run(speech(9)))

    with pytest.raises((OSError, ExceptionGroup)):
        play(work)
    assert nothing_left(engine)
    assert nothing_left(other)


def test_who_leaves_while_a_hop_is_under_way_leaves_nothing(play: Play) -> None:
    """The request was cancelled in the very step that submits it."""
    engine, other = talker(WORDS), Interrupted(WORDS)

    async def work() -> None:
        async with Choreographer(engine) as first:
            async with Choreographer(other, place=1, name="b", beside=first) as second:
                with anyio.CancelScope() as scope:
                    other.during[1] = scope.cancel
                    await second.run(speech(9))
            await first.run(speech(2))
            assert nothing_left(other)

    play(work)


def test_who_is_cancelled_during_a_hop_takes_no_part_in_the_next_step(play: Play, hops: list[StepClock]) -> None:
    engine, rows = Interrupted(WORDS), list[int]()

    async def work() -> None:
        async with Choreographer(engine) as c, anyio.create_task_group() as group:

            async def stays() -> None:
                await c.run(speech(WORDS))

            group.start_soon(stays)
            with anyio.CancelScope() as scope:
                engine.during[6] = scope.cancel
                engine.during[8] = lambda: rows.append(engine.rows)
                await c.run(speech(WORDS))

    play(work)
    assert rows == [1]
    assert len(hops) < engine.steps
    assert nothing_left(engine)


class Breathing(FakeEngine):
    """The share of its store that is held changes in every step."""

    def step(self, deterministic: bool = False) -> StepResult:
        """See `EnginePort.step`."""
        return super().step(deterministic)._replace(held=self.steps / 100)


def test_who_waits_for_room_in_the_store_is_told_of_it_after_the_step(play: Play, hops: list[StepClock]) -> None:
    engine, told = Breathing(lambda call, prompt: " ".join(["word"] * WORDS)), list[int]()

    async def work() -> None:
        async with Choreographer(engine) as c:
            c.stepped = lambda held: told.append(engine.steps)
            await c.run(speech(WORDS))

    play(work)
    assert told == [*range(1, engine.steps + 1)]
