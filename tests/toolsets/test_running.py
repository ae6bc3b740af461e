"""A single tool call: its result, and errors, which are reported to the model and end nothing else."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import anyio
import pytest
import sniffio

import agentcho
from agentcho.errors import EngineClosed, LeakageError, LimitReached, RecordNotFound, ToolFailed
from agentcho.games.tools.running import Returned, call
from agentcho.games.tools.tool import Tool, ToolRaised

BACKENDS = ("asyncio", "trio")


@agentcho.tool
def add(a: int, b: int) -> int:
    return a + b


@agentcho.tool
async def later(text: str) -> dict[str, str]:
    await anyio.lowlevel.checkpoint()
    return {"said": text}


@agentcho.tool
def fail(how: str) -> str:
    if how == "exit":
        sys.exit(3)
    raise ToolRaised("no such city") if how == "told" else ValueError("no such city " + "x" * 600)


class Mute(ValueError):
    """An error whose `__str__` raises."""

    def __str__(self) -> str:
        raise ZeroDivisionError


OTHERS: dict[str, BaseException] = {
    "record": RecordNotFound("last", Path("runs")),
    "engine": EngineClosed(),
    "cancelled": asyncio.CancelledError("broken"),
    "close": GeneratorExit("broken"),
    "exit": SystemExit("broken"),
    "interrupt": KeyboardInterrupt("broken"),
    "mute": Mute(),
    "stop": StopIteration(),
}


@agentcho.tool
def thread(how: str) -> str:
    raise OTHERS[how]


@agentcho.tool
async def coroutine(how: str) -> str:
    raise OTHERS[how]


@agentcho.tool
async def own(how: str) -> str:
    """Cancels what it has begun itself, and awaits it."""
    task = asyncio.create_task(asyncio.sleep(0))
    task.cancel()
    await task
    return how


@agentcho.tool
async def ends(how: str) -> str:
    """What ends a game, alone or in a group."""
    error = {
        "server": ToolFailed("gone"),
        "limit": LimitReached("tokens", "bob", 1),
        "leak": LeakageError("bob", ["ann.0"]),
    }[how]
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.lowlevel.checkpoint)
        raise error
    return how


@agentcho.tool(most=100)
def large(size: int) -> str:
    return "x" * size


@agentcho.tool
def opaque() -> Any:
    return object()


@agentcho.tool
def infinite() -> float:
    return float("inf")


@agentcho.tool(timeout=0.01)
async def never() -> str:
    await anyio.sleep_forever()
    return ""


@agentcho.tool(isolate=True)
def apart(a: int) -> int:
    print("no part of the answer")
    return os.getpid() * a


@agentcho.tool(isolate=True)
async def worse(how: str) -> str:
    if how == "die":
        os._exit(4)
    if how == "large":
        return "x" * 1_000_000
    raise ValueError("apart")


@agentcho.tool(isolate=True, timeout=5)
def hangs(file: str) -> str:
    Path(file).write_text(str(os.getpid()))
    threading.Event().wait()
    return ""


def counted(function: Callable[..., Any]) -> Callable[..., Any]:
    """An ordinary decorator."""

    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


class Later:
    """An awaitable that is not a coroutine."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, Any, str]:
        yield from anyio.lowlevel.checkpoint().__await__()
        return self._value


class Stock:
    """How many of an item there are."""

    async def __call__(self, item: str, where: str = "here") -> str:
        await anyio.lowlevel.checkpoint()
        return f"three {item} {where}"


async def stock(item: str, where: str = "here") -> str:
    await anyio.lowlevel.checkpoint()
    return f"three {item} {where}"


def unsaid(item: str) -> Any:
    return stock(item)


def later_on(item: str) -> Any:
    return Later(f"three {item} here")


@functools.wraps(stock)
def on_the_loop(*args: Any, **kwargs: Any) -> Any:
    return asyncio.get_running_loop().create_task(stock(*args, **kwargs))


AWAITED: dict[str, tuple[Callable[..., Any], str]] = {
    "decorated": (counted(stock), "here"),
    "decorated twice": (counted(counted(stock)), "here"),
    "returned": (unsaid, "here"),
    "of its own kind": (later_on, "here"),
    "an object": (Stock(), "here"),
    "a decorated object": (counted(Stock().__call__), "here"),
    "a partial": (functools.partial(stock, where="there"), "there"),
    "a partial of an object": (functools.partial(Stock(), where="there"), "there"),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", AWAITED)
def test_whatever_can_be_awaited_is_awaited(kind: str, backend: str) -> None:
    function, where = AWAITED[kind]
    made = agentcho.tool(name="stock")(function)
    assert called(made, '{"item": "tea"}', backend)[:2] == (f"three tea {where}", "returned")


def test_a_function_that_is_made_of_a_coroutine_function_runs_on_the_loop() -> None:
    made = agentcho.tool(on_the_loop)
    assert called(made, '{"item": "tea"}')[:2] == ("three tea here", "returned")


def called(tool: Tool, arguments: str, backend: str = "asyncio") -> Returned:
    return anyio.run(call, tool, arguments, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_returns_a_text_or_json(backend: str) -> None:
    assert called(add, '{"a": 1, "b": 2}', backend)[:2] == ("3", "returned")
    assert called(later, '{"text": "hei"}', backend)[:2] == ('{"said": "hei"}', "returned")


@pytest.mark.parametrize(
    ("tool", "arguments", "how", "told"),
    [
        (add, '{"a": 1}', "refused", "b: Field required"),
        (add, "not JSON", "refused", "Invalid JSON"),
        (fail, '{"how": ""}', "raised", "ValueError: no such city"),
        (fail, '{"how": "told"}', "raised", "Error: no such city"),
        (fail, '{"how": "exit"}', "raised", "SystemExit: 3"),
        (large, '{"size": 1000000}', "large", "1000000 bytes, and 100 is the most"),
        (opaque, "{}", "invalid", "no JSON"),
        (infinite, "{}", "invalid", "no JSON"),
        (never, "{}", "timeout", "longer than 0.01 seconds"),
        (thread, '{"how": "record"}', "raised", "RecordNotFound: no run 'last'"),
        (thread, '{"how": "cancelled"}', "raised", "CancelledError: broken"),
        (thread, '{"how": "close"}', "raised", "GeneratorExit: broken"),
        (thread, '{"how": "exit"}', "raised", "SystemExit: broken"),
        (thread, '{"how": "interrupt"}', "raised", "KeyboardInterrupt: broken"),
        (thread, '{"how": "mute"}', "raised", "Mute: <exception str() failed>"),
        (thread, '{"how": "stop"}', "raised", "StopIteration"),
        (coroutine, '{"how": "record"}', "raised", "RecordNotFound: no run 'last'"),
        (coroutine, '{"how": "engine"}', "raised", "EngineClosed: the choreographer"),
        (coroutine, '{"how": "cancelled"}', "raised", "CancelledError: broken"),
        (coroutine, '{"how": "exit"}', "raised", "SystemExit: broken"),
        (own, '{"how": ""}', "raised", "CancelledError"),
    ],
)
def test_what_is_wrong_with_a_call_is_its_result(tool: Tool, arguments: str, how: str, told: str) -> None:
    found = called(tool, arguments)
    assert found.how == how
    assert found.text.startswith("Error: ")
    assert told in found.text
    assert len(found.text) < 600


@pytest.mark.parametrize(("how", "ending"), [("server", ToolFailed), ("limit", LimitReached), ("leak", LeakageError)])
def test_what_is_more_than_one_call_is_raised(how: str, ending: type[Exception]) -> None:
    with pytest.raises(ExceptionGroup) as found:
        called(ends, f'{{"how": "{how}"}}')
    assert isinstance(found.value.exceptions[0], ending)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ctrl_c_in_a_coroutine_and_a_cancellation_from_outside_are_no_results(backend: str) -> None:
    with pytest.raises((KeyboardInterrupt, BaseExceptionGroup)):
        called(coroutine, '{"how": "interrupt"}', backend)

    async def cancelled() -> object:
        with anyio.move_on_after(0):
            return await call(never, "{}")
        return None

    assert anyio.run(cancelled, backend=backend) is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_thread_that_hangs_is_left_behind_at_the_timeout(backend: str) -> None:
    released = threading.Event()

    @agentcho.tool(timeout=0.01)
    def stuck() -> str:
        released.wait()
        return "late"

    found = called(stuck, "{}", backend)
    released.set()
    assert found.how == "timeout"


@pytest.mark.slow
def test_an_isolated_tool_runs_in_another_process() -> None:
    assert called(apart, '{"a": 1}').text != str(os.getpid())


@pytest.mark.slow
def test_a_program_that_plays_games_when_an_isolated_tool_imports_it_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(
        "import agentcho\n\n\n@agentcho.tool(isolate=True, audience='nobody', effect=False)\n"
        "def add(a: int, b: int) -> int:\n    return a + b\n\n\nclass Clerk(agentcho.Agent):\n    tools = [add]\n\n"
        "    async def run(self):\n        await self.say(tool_choice='required')\n\n\n"
        "agentcho.run(Clerk('ann'), model='fake', out='runs')\n"
    )
    ran = subprocess.run([sys.executable, str(file)], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("agentcho.errors.ToolFailed: ")
    assert str(file) in last
    assert 'if __name__ == "__main__":' in last
    assert len([*(tmp_path / "runs").iterdir()]) == 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_function_may_run_an_event_loop_of_its_own(backend: str) -> None:
    async def work() -> str:
        return sniffio.current_async_library()

    @agentcho.tool
    def loops() -> str:
        return anyio.run(work, backend=backend)

    assert called(loops, "{}").text == backend


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "ended", "told"),
    [("die", "raised", "ended with 4"), ("large", "large", "is the most"), ("", "raised", "ValueError: apart")],
)
def test_what_an_isolated_tool_does_to_its_process_is_a_result(how: str, ended: str, told: str) -> None:
    found = called(worse, f'{{"how": "{how}"}}')
    assert found.how == ended
    assert told in found.text


@pytest.mark.slow
def test_an_isolated_tool_that_hangs_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    assert called(hangs, f'{{"file": "{file}"}}').how == "timeout"
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)
