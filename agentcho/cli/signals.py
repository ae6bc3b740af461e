"""Ends a command on a signal as on Ctrl-C: files are closed, and records are kept.

Only the command line does this. A program that calls the library keeps its own handlers.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

from agentcho.games.runs.event_loops import playing_loops

INTERRUPTED = 130
NAMES = ("SIGTERM", "SIGHUP")
PATIENCE = 1.5
"""Seconds after Ctrl-C within which an event loop usually reacts."""


class TerminationAsInterrupt:
    """A context in which SIGTERM and SIGHUP act as Ctrl-C.

    A signal that does not exist or is ignored (SIGHUP under nohup) is left alone. If Ctrl-C itself is ignored (a
    script's background job), its default handler is installed, because an event loop ends cleanly only by it. Outside
    the main thread this does nothing.
    """

    def __init__(self) -> None:
        self._came: int | None = None
        self._before: dict[int, Any] = {}

    def code(self, code: Any) -> Any:
        """Return the exit code of a command: 128 plus the number of the signal that ended it, or else `code`.

        That also replaces the code of a failure to print because the terminal is gone.
        """
        return 128 + self._came if code and self._came is not None else code

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._came = number
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, frame)

    def __enter__(self) -> TerminationAsInterrupt:
        if threading.current_thread() is not threading.main_thread():
            return self
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            self._before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
        for name in NAMES:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)


class BusyNotice:
    """A context in which the first Ctrl-C is followed by a note on standard error, if the loop that plays does not
    react to it.

    Code of a scenario that computes, or sleeps without `await`, holds up the loop, and with it the first Ctrl-C. The
    second one interrupts that code. A thread learns of the signal from Python's wakeup file, because the main thread is
    busy. If a library sets another such file, there is no note. Outside the main thread this does nothing.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> BusyNotice:
        if threading.current_thread() is not threading.main_thread():
            return self
        self._woken, self._wakes = socket.socketpair()
        self._wakes.setblocking(False)
        self._before = signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is None:
            return
        signal.set_wakeup_fd(self._before)
        self._done.set()
        self._wakes.close()
        self._thread.join()
        self._woken.close()

    def _watch(self) -> None:
        """Read the numbers of signals until the first Ctrl-C, or until the context ends."""
        while number := self._woken.recv(1):
            if number[0] == signal.SIGINT:
                tell_if_busy(self._done, self._patience)
                return


def tell_if_busy(reacted: threading.Event, patience: float) -> None:
    """Print how to stop at once, unless a loop that plays reacts, or `reacted` is set otherwise, before long."""
    loops = playing_loops()
    for loop in loops:
        try:
            loop.call_soon_threadsafe(reacted.set)
        except RuntimeError:  # it is closed
            reacted.set()
    if loops and not reacted.wait(patience):
        print("stopping; press Ctrl-C again to stop at once", file=sys.stderr, flush=True)
