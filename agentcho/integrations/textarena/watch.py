"""Runs foreign code in a thread with a time limit. Code that exceeds it is abandoned and blocks nothing.

A thread cannot be stopped from outside. An abandoned thread is asked to end, which works as soon as it runs Python
code. Otherwise it stays until the process ends, and nothing waits for it.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

import anyio
import anyio.to_thread

from agentcho.errors import ScenarioError

T = TypeVar("T")
AT_ONCE = 0.05
"""Seconds for which work is waited for in place. Quick work takes effect before anything else runs, so that the order
of games' turns does not depend on how long a thread took."""


class Watched(Generic[T]):
    """Work that starts at once in its own thread. `what` names it in errors; `seconds` is its time limit."""

    def __init__(self, work: Callable[[], T], what: str, seconds: float) -> None:
        self._work = work
        self._what = what
        self._seconds = seconds
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"agentcho: {what}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result.append(self._work())
        except BaseException as error:
            self._error = error
        finally:
            self._over.set()

    def wait(self) -> T:
        """Block until it is over. Raises what it raises. `ScenarioError`: it took too long and was abandoned."""
        self._over.wait(self._seconds)
        return self._come()

    async def wait_beside(self) -> T:
        """Like `wait`, but other tasks run while work that is not quick goes on."""
        if not self._over.wait(min(AT_ONCE, self._seconds)):
            left = max(0.0, self._seconds - AT_ONCE)
            try:
                wait = partial(self._over.wait, left)
                await anyio.to_thread.run_sync(wait, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
            except BaseException:
                self._give_up()
                self._over.set()  # releases the waiting thread
                raise
        return self._come()

    def _come(self) -> T:
        if not self._over.is_set():
            self._give_up()
            raise ScenarioError(
                f"{self._what} did not come back within {self._seconds:g} s and was abandoned; this game ends, "
                "and the others continue. Give it longer with --set seconds=N"
            )
        if self._error is not None:
            raise self._error
        return self._result[0]

    def _give_up(self) -> None:
        """Ask the thread to end: `SystemExit` is raised in it at its next Python bytecode."""
        if self._thread.ident is not None and self._thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident), ctypes.py_object(SystemExit))
