"""One tool call, from the arguments that a model wrote to the text of its result, limited in time and size.

An error of a single call is also a result, for the model to read: its arguments do not fit, or the function raises,
takes too long, or returns no JSON or too much of it. The game ends only if a server is gone (`ToolFailed`), or on a
limit or leak of a game that the function itself speaks in. Independent of agents, games and records.
"""

from __future__ import annotations

import json
import re
import threading
from contextlib import suppress
from contextvars import copy_context
from inspect import isawaitable
from math import inf
from time import perf_counter
from traceback import format_exception_only
from typing import Any, Literal, NamedTuple

import anyio
import anyio.from_thread
import anyio.lowlevel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from agentcho.choreography.quiescence import ended_from_outside
from agentcho.errors import LeakageError, LimitReached, RequestError, ToolFailed, amount
from agentcho.games.tools.isolated import in_process
from agentcho.games.tools.tool import Tool, ToolRaised, is_async

LONE = re.compile("[\ud800-\udfff]")
SAID = 500
"""The maximum number of letters of an error that the model reads."""
How = Literal["returned", "refused", "raised", "timeout", "invalid", "large", "skipped", "cancelled"]
"""How a call ended: it returned; its arguments were refused; it raised; it timed out; its result is not JSON, or too
large; it was not repeated, because it may have been made before; it was cancelled."""


class Returned(NamedTuple):
    """The result of a call.

    Attributes:
        text: Its text for the model.
        how: How the call ended.
        seconds: How long it took.
    """

    text: str
    how: How
    seconds: float = 0.0


async def call(tool: Tool, arguments: str) -> Returned:
    """Call a tool.

    When the call is cancelled or times out, a coroutine is cancelled, a process is killed, and a thread is left behind,
    whose result nobody waits for.
    """
    began = perf_counter()
    found = await _called(tool, arguments)
    return found._replace(seconds=perf_counter() - began)


async def _called(tool: Tool, arguments: str) -> Returned:
    try:
        given = tool.validate(arguments)
    except RequestError as error:
        return failed("refused", str(error))
    limit = tool.declared.timeout
    with anyio.CancelScope() as scope:
        scope.deadline = inf if limit is None else anyio.current_time() + limit
        try:
            return _written(tool, await _run(tool, arguments, given))
        except ToolRaised as error:
            return failed("raised", str(error))
        except BaseException as error:
            if _ends_game(error):
                raise
            return failed("raised", _told(error))
    return failed("timeout", f"{tool.name} took longer than {amount(limit or 0, 'seconds')}, and was given up")


def _ends_game(error: BaseException) -> bool:
    """Return whether an error of a function ends more than this call.

    A cancellation that was not requested does not, and neither does any other error of this package.
    """
    if isinstance(error, BaseExceptionGroup):
        return any(_ends_game(each) for each in error.exceptions)
    ending = ToolFailed, LimitReached, LeakageError, KeyboardInterrupt
    return isinstance(error, ending) or ended_from_outside(error)


def _told(error: BaseException) -> str:
    """Return the class and text of an error, even if its `__str__` fails."""
    return "".join(format_exception_only(error)).strip().removeprefix(f"{type(error).__module__}.")


async def _run(tool: Tool, arguments: str, given: dict[str, Any]) -> Any:
    if tool.declared.isolate:
        return await in_process(tool, arguments)
    value = tool.function(**given) if is_async(tool.function) else await _in_thread(tool, given)
    return await value if isawaitable(value) else value


async def _in_thread(tool: Tool, given: dict[str, Any]) -> Any:
    """Run a function in a daemon thread, because a thread that hangs cannot be ended and must not keep the process
    alive."""
    done, token, context = anyio.Event(), anyio.lowlevel.current_token(), copy_context()
    with suppress(ImportError):  # the thread runs no event loop, and the function may run one of its own
        from sniffio import current_async_library_cvar

        context.run(current_async_library_cvar.set, None)
    value: Any = None
    error: BaseException | None = None

    def work() -> None:
        nonlocal value, error
        try:
            value = context.run(tool.function, **given)
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop has ended, and nothing waits
            anyio.from_thread.run_sync(done.set, token=token)

    threading.Thread(target=work, name=f"tool {tool.name}", daemon=True).start()
    await done.wait()
    if error is None:
        return value
    if isinstance(error, Exception):
        raise error
    raise ToolRaised(_told(error)) from error  # a tool's thread gets no real Ctrl-C or cancellation


def _written(tool: Tool, value: Any) -> Returned:
    """Return the text of what a tool returned."""
    most = tool.declared.most
    try:
        text = value if isinstance(value, str) else _json(value)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        why = str(error).partition("\n")[0]
        return failed("invalid", f"{tool.name} returned what is no JSON ({why})")
    text = LONE.sub("\ufffd", text)
    if (size := len(text.encode())) > most:
        return failed("large", f"the result of {tool.name} has {size} bytes, and {most} is the most; ask for less")
    return Returned(text, "returned")


def _json(value: Any) -> str:
    return json.dumps(to_jsonable_python(value), ensure_ascii=False, allow_nan=False)


def failed(how: How, why: str) -> Returned:
    """Return a result that tells the model what went wrong."""
    why = LONE.sub("\ufffd", why)
    return Returned(f"Error: {why if len(why) <= SAID else why[:SAID] + '…'}", how)
