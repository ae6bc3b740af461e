"""Runs a tool in a process of its own, so that it can be killed.

Calls and answers are JSON, and nothing in an answer is executed. The process imports the file that defines the tool. It
is killed with everything that it started when its time is over or its caller is cancelled.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

import anyio
import anyio.abc

from agentcho.errors import ToolFailed
from agentcho.games.tools.tool import Tool, ToolRaised

CHILD = "agentcho.games.tools.child"
BESIDE = 1 << 12
"""Bytes that an answer may have in addition to the result."""
ESCAPED = 6
"""Bytes that one letter of a result may take in JSON."""
importing: str | None = None
"""In the process of a call: the file that it is importing now, which must not play a game. None anywhere else."""


async def in_process(tool: Tool, arguments: str) -> Any:
    """Return what the tool returns, as JSON values. Raises `ToolRaised` if it raised, or its process died, and
    `ToolFailed` if its file plays a game when it is imported."""
    command, most = [sys.executable, "-m", CHILD], tool.declared.most * ESCAPED + BESIDE
    process = await anyio.open_process(command, stderr=subprocess.DEVNULL, start_new_session=True, env=_environment())
    try:
        assert process.stdin is not None
        with suppress(anyio.BrokenResourceError):  # it died before it had read everything; its answer says why
            await process.stdin.send(json.dumps(_asked(tool, arguments)).encode())
            await process.stdin.aclose()
        answer = await _read(process, most)
        code = await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            _kill(process.pid)
            await process.aclose()
    return _value(answer, code, most)


def _asked(tool: Tool, arguments: str) -> dict[str, str]:
    made = tool.function  # its definition checked that it can be found
    there = {
        "module": made.__module__,
        "file": inspect.unwrap(made).__code__.co_filename,
        "function": made.__qualname__,
    }
    return there | {"arguments": arguments}


def _environment() -> dict[str, str]:
    """Return an environment in which the process finds the same modules as this one."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


async def _read(process: anyio.abc.Process, most: int) -> bytes:
    """Return what the process wrote, cut to one byte above the maximum. A process that writes more is killed."""
    found = bytearray()
    assert process.stdout is not None
    async for piece in process.stdout:
        found += piece
        if len(found) > most:
            _kill(process.pid)
            break
    return bytes(found[: most + 1])


def _kill(pid: int) -> None:
    """Kill a process and everything that it started, which are a group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _value(answer: bytes, code: int, most: int) -> Any:
    if len(answer) > most:
        return "\0" * most  # too large for any result, so that the caller reports it
    try:
        told = json.loads(answer)
        if "failed" in told:
            raise ToolFailed(str(told["failed"]))
        if "error" in told:
            raise ToolRaised(str(told["error"]))
        return told["result"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ToolRaised(f"its process ended with {code} and without a result") from None
