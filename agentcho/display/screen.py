"""The base class of screens, which keeps the messages and games of a run for the tables at the end.

Independent of how they are shown.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from agentcho.display.text_table import TextTable
from agentcho.display.totals import costs, outcomes
from agentcho.events import Encoded, Ended, Event, GameOver
from agentcho.games.runs.runtime import RunResult
from agentcho.records.record import SavedRun
from agentcho.records.transcript import TranscriptEntry, carry


class Screen:
    """Receives the events of a run, and at the end its result. A context manager around the run.

    `moves`: it is live on a terminal from the first event on, so no progress bar is needed.
    """

    moves = False

    def __init__(self) -> None:
        self.entries: list[TranscriptEntry] = []
        self.games: dict[int, GameOver] = {}

    def hear(self, event: Event) -> None:
        """Receive one event, on the event loop. Subclasses show it."""
        if isinstance(event, Ended):
            self.entries.append(event.entry)
        elif isinstance(event, Encoded):
            carry(self.entries, event.encodings)
        elif isinstance(event, GameOver):
            self.games[event.game] = event

    def remember(self, run: SavedRun) -> None:
        """Add the games of a run that is resumed, which belong in the tables too."""
        said = run.games()
        self.games = {number: over for number, over in run.finished().items() if not over.failed}
        self.entries = [entry for number in self.games for entry in said[number]]

    def close(self, played: RunResult) -> None:
        """Show the result of the run, which is over."""

    def sheets(self) -> list[TextTable]:
        """Return the tables for the end: outcomes, scores, costs."""
        games = [self.games[index] for index in sorted(self.games)]
        return [*(outcomes(games) if games else []), *([costs(self.entries)] if self.entries else [])]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the terminal."""


class NoScreen(Screen):
    """Shows nothing, and keeps no messages."""

    def hear(self, event: Event) -> None:
        """Receive one event."""
        if isinstance(event, GameOver):
            self.games[event.game] = event


def summary(played: RunResult) -> list[str]:
    """Return the last lines: how the run ended, its costs, and where its record is."""
    lines = ["interrupted: the record holds everything said so far"] if played.interrupted else []
    lines.append(f"{played.seconds:.1f} s, {played.steps} engine steps")
    if played.record is not None:
        lines.append(f"record: {played.record}")
    return lines
