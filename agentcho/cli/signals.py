"""What ends a command from outside ends it as Ctrl-C does: what is open is closed, what was said is kept.

Does not know: what is running. Only the command line does this; a program that calls the library keeps its handlers.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

INTERRUPTED = 130
NAMES = ("SIGTERM", "SIGHUP")


class Ends:
    """A context in which SIGTERM and SIGHUP come as Ctrl-C; where there is no SIGHUP, or it is ignored (nohup), it
    stays so. Where Ctrl-C itself is ignored (a job that a script put into the background), they end the command all
    the same. No-op outside the main thread."""

    def __init__(self) -> None:
        self._came: int | None = None
        self._before: dict[int, Any] = {}

    def code(self, code: Any) -> Any:
        """What to exit with: of a command that was interrupted, what is usual for the signal that did it."""
        return 128 + self._came if code == INTERRUPTED and self._came is not None else code

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._came = number
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    def __enter__(self) -> Ends:
        for name in NAMES:
            number = getattr(signal, name, None)
            if number is None or signal.getsignal(number) is signal.SIG_IGN:
                continue
            try:
                self._before[number] = signal.signal(number, self._end)
            except ValueError:  # not the main thread
                return self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
