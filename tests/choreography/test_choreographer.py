"""The loop of the choreographer: what runs together, in which order, and that nothing stalls it."""

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from agentcho import Choreographer, Decode, Prefill
from agentcho.choreography.requests import Request
from agentcho.errors import Overloaded, UnknownEncoding
from agentcho.testing import FakeEngine

from .stage import Play, empty, nothing_left, speech, talker


def test_what_arrives_together_runs_together(play: Play) -> None:
    engine = talker()

    async def work() -> None:
        async with Choreographer(engine) as c:
            await c.tasks.together(*(c.run(speech(4)) for _ in range(5)))
            assert (c.steps, c.encoded) == (5, 5 * (4 + 4))

    play(work)
    assert [len(batch) for batch in engine.batches] == [5] * 5


def test_six_agents_that_speak_three_times_take_the_steps_of_the_longest(play: Play) -> None:
    engine = talker(9)

    async def agent(c: Choreographer, words: int) -> None:
        for _ in range(3):
            await c.run(speech(words))

    async def work() -> None:
        async with Choreographer(engine) as c:
            await c.tasks.together(*(agent(c, words) for words in range(3, 9)))

    play(work)
    longest = 3 * (8 + 1)
    assert engine.steps == longest


def test_a_request_comes_back_with_its_calls_its_pieces_and_its_times(play: Play) -> None:
    engine = FakeEngine(lambda call, prompt: "one two three")
    pieces: list[str] = []
    prompt = Prefill("well?")
    request = Request((prompt, Decode("To all: ", parents=[prompt])), on_token=pieces.append)

    async def work() -> None:
        async with Choreographer(engine) as c:
            result = await c.run(request)
            first, second = result.made
            assert first.words.text == "well?"
            assert second.words.text == "".join(pieces) == "one two three"
            assert [entry.id for entry in second.receipt.context] == [first.id]
            assert 0 < result.ttft < result.seconds

    play(work)


def test_the_books_are_written_before_anyone_wakes(play: Play) -> None:
    engine, order = talker(2), list[str]()

    async def work() -> None:
        async with Choreographer(engine) as c:

            async def agent(name: str) -> None:
                await c.run(speech(2)._replace(on_done=lambda result: order.append("done")))
                order.append("awake")

            await c.tasks.together(agent("a"), agent("b"))

    play(work)
    assert order == ["done", "done", "awake", "awake"]


def test_more_requests_than_are_taken_are_refused_and_none_is_lost(play: Play) -> None:
    engine = talker(2)

    async def work() -> None:
        async with Choreographer(engine, max_requests=3) as c:
            refused = list[Overloaded]()

            async def agent() -> None:
                try:
                    await c.run(speech(2))
                except Overloaded as error:
                    refused.append(error)

            await c.tasks.together(*(agent() for _ in range(5)))
            assert [str(error)[:32] for error in refused] == ["the choreographer has 3 requests"] * 2
            await c.run(speech(2))  # there is room again

    play(work)
    assert {len(batch) for batch in engine.batches} == {3, 1}


# -- when a step starts ------------------------------------------------------------------------------------


def test_a_task_that_only_computes_between_its_turns_is_waited_for(play: Play) -> None:
    """Counted, not timed: the slow task's second turn joins, though submitting it takes many rounds of the loop."""
    engine = talker(2)

    async def slow(c: Choreographer) -> None:
        await c.run(speech(2))
        for _ in range(9):
            await anyio.lowlevel.checkpoint()
        await c.run(speech(2))

    async def quick(c: Choreographer) -> None:
        for _ in range(2):
            await c.run(speech(2))

    async def work() -> None:
        async with Choreographer(engine) as c:
            await c.tasks.together(*(c.tasks.together(quick(c)) for _ in range(3)), quick(c), slow(c))

    play(work)
    assert engine.steps == 2 * 3
    assert {len(batch) for batch in engine.batches} == {5}


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
            await c.tasks.together(waits(c), speaks(c))

    play(work)
    assert engine.steps == 4 + 4


def test_who_looks_again_and_again_holds_nobody_up(play: Play) -> None:
    engine, said = talker(2), list[str]()

    async def work() -> None:
        async def looks(c: Choreographer) -> None:
            while not said:
                await anyio.sleep(0)
            await c.run(speech(2))

        async def speaks(c: Choreographer) -> None:
            await c.run(speech(2))
            said.append("it")

        async with Choreographer(engine) as c:
            await c.tasks.together(looks(c), speaks(c))

    play(work)
    assert engine.steps == 3 + 3


def test_a_thread_of_an_agent_holds_nobody_up(play: Play) -> None:
    engine = talker(2)

    async def work() -> None:
        async def computes(c: Choreographer) -> None:
            assert await anyio.to_thread.run_sync(sum, [1, 2]) == 3
            await c.run(speech(2))

        async with Choreographer(engine) as c:
            await c.tasks.together(computes(c), c.run(speech(2)))

    play(work)
    assert 3 <= engine.steps <= 6


def test_tasks_of_a_raw_group_are_served_too(play: Play) -> None:
    engine = talker(3)

    async def work() -> None:
        async with Choreographer(engine) as c:

            async def agent() -> None:
                async with anyio.create_task_group() as group:
                    for _ in range(3):
                        group.start_soon(c.run, speech(3))
                await c.run(speech(3))

            await c.tasks.run(agent())

    play(work)
    assert engine.steps == 4 + 4
    assert len(engine.batches[0]) == 3


def test_the_order_of_arrival_does_not_show(play: Play) -> None:
    """Tasks that run in different orders give the same batches: requests are sorted by their order keys."""

    def words(order: list[int]) -> list[int]:
        engine = talker(9)
        ids: dict[int, int] = {}

        async def work() -> None:
            async with Choreographer(engine) as c:

                async def agent(n: int) -> None:
                    ids[n] = (await c.run(speech(n + 1, n))).made[0].id

                await c.tasks.together(*(agent(n) for n in order))

        play(work)
        return [ids[n] for n in range(3)]

    assert words([0, 1, 2]) == words([2, 0, 1]) == [1, 2, 3]


# -- releasing encodings -----------------------------------------------------------------------------------


def test_what_is_released_is_freed_while_others_go_on(play: Play) -> None:
    engine = talker(3)

    async def work() -> None:
        async with Choreographer(engine) as c:
            kept = await c.run(Request((Prefill("kept"), Prefill("and this"))))
            c.release([kept.made[0].id])
            result = await c.run(speech(2))
            assert engine.pages == 2
            c.release([result.made[0].id, kept.made[1].id])
            assert await empty(c, engine)

    play(work)
    assert nothing_left(engine)


def test_what_is_not_held_cannot_be_released_and_nobody_else_is_disturbed(play: Play) -> None:
    engine = talker(3)

    async def work() -> None:
        async with Choreographer(engine) as c:
            [mine] = (await c.run(speech(2))).made
            for ids in ([mine.id, 99], [99]):
                with pytest.raises(UnknownEncoding, match="99"):
                    c.release(ids)
            c.release([mine.id])
            with pytest.raises(UnknownEncoding):
                c.release([mine.id])
            assert (await c.run(speech(2))).made[0].words.text == "word word"
        c.release([mine.id])

    play(work)
    assert nothing_left(engine)
