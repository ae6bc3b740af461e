"""Commands in terminals of their own, for tests: opened in one folder, killed at the end of the test."""

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
    """Opens terminals on demand, and kills their processes at the end.

    Closing a terminal ends its process even if the test runner ignores SIGHUP (`nohup`).
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
    """Checks that no canary is seen before `until` first appears."""
    frames = [frame.replace("\n", "").replace(" ", "") for frame in console.frames]
    end = next((place for place, frame in enumerate(frames) if until.replace(" ", "") in frame), len(frames))
    assert not [frame for frame in frames[:end] if "CANARY" in frame]
    assert "CANARY" not in console.raw.partition(until)[0]


SHOWN_AFTER = {8, 9, 10, 11, 17, 18}
"""The canaries in what a scenario printed, warned and logged, in the outcome and in the score."""


def kept(console: Console) -> None:
    """Checks that no canary is ever seen, except those that may be shown at the end."""
    seen = {int(number) for frame in (*console.frames, console.raw) for number in re.findall(r"CANARY(\d+)", frame)}
    assert 17 in seen, "how it came out is shown"
    assert seen <= SHOWN_AFTER
