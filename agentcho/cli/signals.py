"""Ends a command on a signal as on Ctrl-C: files are closed, and records are kept.

Only the command line does this. A program that calls the library keeps its own handlers.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

INTERRUPTED = 130
NAMES = ("SIGTERM", "SIGHUP")


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
