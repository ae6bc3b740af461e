"""Shows the progress of a command: a bar on a terminal; elsewhere a line, at most one per half minute.

Both are drawn only inside `tell`, not by a thread or timer: during a long wait without a call of `tell` nothing is
drawn.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from math import inf
from time import monotonic
from types import TracebackType
from typing import IO, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from agentcho.display.safe import inline

EVERY = 30.0
DRAWN = 0.1
"""Seconds between two lines (`EVERY`), and between two drawings of a bar."""
MonotonicClock = Callable[[], float]


class WorkPace(NamedTuple):
    """The start of some work: the time (`began`), and the number of units done by then (`first`). `of` is the total."""

    unit: str
    of: int
    first: int
    began: float

    def told(self, done: int, now: float, least: int = 1) -> str:
        """Return the rate and the time left at that rate. Empty before `least` units were done since the start."""
        if done < self.first + least or now <= self.began:
            return ""
        rate = (done - self.first) / (now - self.began)
        return f", {_rate(rate, self.unit)}, {_span((self.of - done) / rate)} left"


def _rate(a_second: float, unit: str) -> str:
    """Return a rate per second, minute or hour: the shortest in which at least one unit is done, or else the hour."""
    named = {"s": 1, "min": 60, "h": 3600}
    name = next((name for name, seconds in named.items() if a_second * seconds >= 1), "h")
    return f"{a_second * named[name]:.1f} {unit}/{name}"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class Progress:
    """Shows the progress reported to `tell`, a `ProgressCallback`; this base class shows nothing. A context manager
    that clears at its end. `every`: seconds between two drawings; `least`: units to do before the time left is
    shown."""

    every = inf

    def __init__(self, clock: MonotonicClock = monotonic, last: float = inf, least: int = 1) -> None:
        self._clock = clock
        self._last = last
        self._least = least
        self._pace = WorkPace("", 0, 0, 0.0)
        self._paces: dict[tuple[str, int], tuple[WorkPace, int]] = {}
        self._done = 0

    def tell(self, what: str, done: int, of: int) -> None:
        """Report that `done` of `of` units are done. Another unit, another total, or a smaller `done` means that other
        work begins; work that continues after other work keeps its pace."""
        now = self._clock()
        unit = what.partition(" ")[0]
        pace, before = self._paces.get((unit, of), (self._pace, done + 1))
        self._pace = pace if done >= before else WorkPace(unit, of, done, now)
        self._paces[unit, of] = self._pace, done
        self._done = done
        if now - self._last >= self.every:
            told, *which = inline(what).partition(" (")
            self._show("".join((f"{done} of {of} {told}", self._pace.told(done, now, self._least), *which)))
            self._last = now

    def clear(self) -> None:
        """Remove the drawing from the terminal; the next `tell` draws again."""

    def _show(self, words: str) -> None:
        """Draw the progress now."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()


class ProgressLines(Progress):
    """Prints a line every half minute, the first after half a minute. Errors in writing are ignored."""

    every = EVERY

    def __init__(self, name: str, file: IO[str], clock: MonotonicClock, least: int = 1) -> None:
        super().__init__(clock, clock(), least)
        self._name = name
        self._file = file

    def _show(self, words: str) -> None:
        with suppress(OSError):
            print(f"{self._name}: {words}", file=self._file, flush=True)


class Bars(Progress):
    """Draws one bar at a time, in the last line of a terminal, after `name`."""

    every = DRAWN

    def __init__(self, name: str, console: Console, clock: MonotonicClock, least: int = 1) -> None:
        super().__init__(clock, -inf, least)
        self._name = name
        self._console = console
        self._bar: Bar | None = None

    def _show(self, words: str) -> None:
        bar = self._bar or self._begun()
        bar.update(bar.task_ids[0], completed=self._done, total=self._pace.of, words=words, refresh=True)

    def _begun(self) -> Bar:
        name, words = (TextColumn(f"{{task.{each}}}", markup=False) for each in ("description", "fields[words]"))
        shared = self._console.file is sys.stdout
        columns = (name, BarColumn(20), words)
        self._bar = Bar(*columns, console=self._console, transient=True, auto_refresh=False, redirect_stdout=shared)
        self._bar.add_task(self._name, words="")
        self._bar.start()
        return self._bar

    def clear(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar = None
        self._last = -inf


def progress(
    name: str, file: IO[str] | None, bars: bool = True, clock: MonotonicClock | None = None, least: int = 1
) -> Progress:
    """Return the progress of a command, written to `file`: a bar if that is a terminal, else lines. `bars` False: lines
    on a terminal too, because something else is written to it. `least`: see `Progress`."""
    clock = clock or monotonic
    if file is None:
        return Progress()
    console = Console(file=file, highlight=False, emoji=False, markup=False)
    if bars and file.isatty() and not console.is_dumb_terminal:
        return Bars(name, console, clock, least)
    return ProgressLines(name, file, clock, least)
