"""Functions run in a thread: results, errors, and calls that do not return."""

from __future__ import annotations

import threading
from collections.abc import Callable

import anyio
import pytest

from agentcho.errors import ScenarioError
from agentcho.integrations.textarena.watch import AT_ONCE, Watched


def beside(work: Callable[[], int], seconds: float) -> int:
    return anyio.run(Watched(work, "it", seconds).wait_beside)


def in_place(work: Callable[[], int], seconds: float) -> int:
    return Watched(work, "it", seconds).wait()


@pytest.mark.parametrize("run", [beside, in_place])
def test_what_comes_back_does_with_its_result_or_its_error(run: Callable[[Callable[[], int], float], int]) -> None:
    assert run(lambda: 3, 5.0) == 3
    with pytest.raises(ZeroDivisionError):
        run(lambda: 1 // 0, 5.0)


@pytest.mark.parametrize("run", [beside, in_place])
def test_what_does_not_come_back_is_an_error_and_its_thread_is_asked_to_end(
    run: Callable[[Callable[[], int], float], int],
) -> None:
    ended = threading.Event()

    def hang() -> int:
        try:
            while not ended.wait(0.001):
                pass
        finally:
            ended.set()
        return 0

    with pytest.raises(ScenarioError, match=r"it did not come back within 0.06 s and was abandoned.*--set seconds=N"):
        run(hang, AT_ONCE + 0.01)
    assert ended.wait(5)


def test_who_waits_for_what_takes_longer_holds_nobody_up() -> None:
    other = threading.Event()

    async def both() -> bool:
        watched = Watched(lambda: other.wait(5), "it", 5.0)
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, other.set)
            assert await watched.wait_beside()
        return True

    assert anyio.run(both)


def test_who_is_cancelled_while_it_waits_gives_it_up() -> None:
    ended = threading.Event()

    def hang() -> None:
        try:
            while not ended.wait(0.001):
                pass
        finally:
            ended.set()

    async def cancelled() -> None:
        with anyio.move_on_after(AT_ONCE + 0.02):
            await Watched(hang, "it", 60.0).wait_beside()

    anyio.run(cancelled)
    assert ended.wait(5)
