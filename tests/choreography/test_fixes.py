"""Two regressions: a limit inside a scenario's own task group, and agents that block every worker thread."""

import threading
from collections.abc import Sequence

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from agentcho import Choreographer, Game, Limits
from agentcho.errors import LimitReached
from agentcho.games.play.limits import only_limit
from agentcho.protocol.call import StepResult
from agentcho.testing import FakeEngine

from .stage import Play, Talker, game, speech, spoken, talker


async def side_by_side(game: Game) -> None:
    """Two agents speak repeatedly in nested task groups of the scenario."""

    async def talk(agent: Talker) -> None:
        for _ in range(5):
            await agent.say()

    async with anyio.create_task_group() as outer, anyio.create_task_group() as inner:
        outer.start_soon(talk, game.cast(Talker, "alice"))
        inner.start_soon(talk, game.cast(Talker, "bob"))


LIMITS = [Limits(agent_messages=2), Limits(game_messages=3), Limits(agent_tokens=6), Limits(game_tokens=10)]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_a_limit_in_a_task_group_is_an_outcome(play: Play, limits: Limits) -> None:
    entries, [over] = game(play, side_by_side, talker(3), limits=limits)
    assert over.ended is not None
    assert over.ended.startswith("limit: ")
    assert 0 < len(spoken(entries)) < 10


def test_an_error_beside_a_limit_is_an_error(play: Play) -> None:
    async def script(game: Game) -> None:
        alice = game.cast(Talker, "alice")

        async def fails() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                raise ZeroDivisionError

        async def talks() -> None:
            while True:
                await alice.say()

        async with anyio.create_task_group() as group:
            group.start_soon(fails)
            group.start_soon(talks)

    with pytest.raises(ExceptionGroup) as group:
        game(play, script, limits=Limits(agent_messages=1))
    assert {type(error) for error in group.value.exceptions} == {LimitReached, ZeroDivisionError}


LIMIT = LimitReached("tokens", "alice", 6)
OTHER = LimitReached("messages", "bob", 2)


@pytest.mark.parametrize(
    ("errors", "limit"),
    [
        ([LIMIT], LIMIT),
        ([LIMIT, OTHER], LIMIT),
        ([ExceptionGroup("", [OTHER]), LIMIT], OTHER),
        ([LIMIT, ValueError()], None),
        ([ExceptionGroup("", [LIMIT, ValueError()])], None),
    ],
)
def test_a_group_is_a_limit_where_it_holds_nothing_else(
    errors: Sequence[Exception], limit: LimitReached | None
) -> None:
    assert only_limit(ExceptionGroup("", errors)) is limit


def test_an_error_may_be_the_context_of_a_group_that_holds_it() -> None:
    """As in errors that asynchronous clients raise when they close."""
    within, beside = ValueError("within"), ValueError("beside")
    closed = ExceptionGroup("", [within])
    within.__context__ = beside
    beside.__context__ = closed
    assert only_limit(closed) is None
    assert only_limit(within) is None
    beside.__context__ = ExceptionGroup("", [within, LIMIT])
    assert only_limit(closed) is None
    beside.__context__ = LIMIT
    assert only_limit(closed) is LIMIT


def test_agents_that_block_every_worker_thread_do_not_stop_the_steps(play: Play) -> None:
    """All worker threads wait for something that only a step can bring; steps have an extra thread."""
    engine, brought = FakeEngine(lambda call, prompt: "a word or two"), threading.Event()

    async def work() -> int:
        workers = anyio.to_thread.current_default_thread_limiter()
        waiting = int(workers.total_tokens)

        async def blocked() -> None:
            assert await anyio.to_thread.run_sync(brought.wait, 10)

        async with Choreographer(engine) as c, anyio.create_task_group() as group:
            for _ in range(waiting):
                group.start_soon(blocked)
            while workers.available_tokens:
                await anyio.lowlevel.checkpoint()
            await c.run(speech(4))
            brought.set()
        return c.steps

    assert play(work) > 0


def test_a_step_runs_in_one_thread_at_a_time(play: Play) -> None:
    """However many requests there are, the engine is never entered twice."""
    inside, most = [0], [0]

    class Watched(FakeEngine):
        def step(self, deterministic: bool = False) -> StepResult:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            try:
                return super().step(deterministic)
            finally:
                inside[0] -= 1

    async def work() -> None:
        async with Choreographer(Watched()) as c:
            await c.tasks.together(*(c.run(speech(words)) for words in range(1, 9)))

    play(work)
    assert most == [1]
