"""Commands in terminals of their own, for tests: opened in one folder, gone at the end of the test."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentcho.records.record import SavedRun, find

from .emulator import Console

CANARIES = str(Path(__file__).parent / "canaries.py")
SEATS = str(Path(__file__).parent / "seats.py")


class Opens:
    """Opens `agentcho run …` on the fake model in a terminal."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.opened: list[Console] = []

    def __call__(self, *words: str, **more: int) -> Console:
        self.opened.append(Console("run", *words, folder=str(self._folder), **more))  # type: ignore[arg-type]
        return self.opened[-1]

    @property
    def record(self) -> SavedRun:
        return find("last", self._folder / "runs")


@contextmanager
def consoles(folder: Path) -> Iterator[Opens]:
    """A context in which terminals can be opened. Their processes are gone at its end.

    A closed terminal ends them, also where what runs the tests goes on after that of its own (`nohup`).
    """
    opens = Opens(folder)
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield opens
    finally:
        signal.signal(signal.SIGHUP, before)
        for each in opens.opened:
            try:
                signal.pidfd_send_signal(os.pidfd_open(each.pid), signal.SIGKILL)
            except (OSError, ProcessLookupError):
                continue


def hidden(console: Console, until: str = "game is over") -> None:
    """No canary was ever seen, up to the first sight of `until`."""
    frames = [frame.replace("\n", "").replace(" ", "") for frame in console.frames]
    end = next((place for place, frame in enumerate(frames) if until.replace(" ", "") in frame), len(frames))
    assert not [frame for frame in frames[:end] if "CANARY" in frame]
    assert "CANARY" not in console.raw.partition(until)[0]


SHOWN_AFTER = {8, 9, 10, 11, 17, 18}
"""What a scenario has printed, warned of and logged, the outcome and the score."""


def kept(console: Console) -> None:
    """The end aside, no canary was ever seen, by the time that the command is over either."""
    seen = {int(number) for frame in (*console.frames, console.raw) for number in re.findall(r"CANARY(\d+)", frame)}
    assert 17 in seen, "how it came out is shown"
    assert seen <= SHOWN_AFTER
