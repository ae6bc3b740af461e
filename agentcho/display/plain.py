"""Shows a run as plain lines, for pipes and files: complete, without colour or movement.

Must not depend on rich or terminals.
"""

from __future__ import annotations

from typing import IO

from agentcho.display import speech, text_table
from agentcho.display.safe import visible
from agentcho.display.screen import Screen, summary
from agentcho.display.totals import ending
from agentcho.events import Ended, Event, GameOver
from agentcho.games.runs.runtime import RunResult


class _Plain(Screen):
    def __init__(self, title: str, file: IO[str]) -> None:
        super().__init__()
        self._file = file
        self.line(title)

    def line(self, text: str = "") -> None:
        """Print a line and flush it."""
        print(visible(text), file=self._file, flush=True)

    def close(self, played: RunResult) -> None:
        for each in self.sheets():
            self.line("\n" + text_table.plain(each))
        self.line("\n" + "\n".join(summary(played)))


class PlainTalk(_Plain):
    """Shows one game: every message when it is finished."""

    def hear(self, event: Event) -> None:
        super().hear(event)
        if isinstance(event, Ended):
            self.line(speech.plain(speech.MessageView.of(event.entry)))


class PlainGames(_Plain):
    """Shows several games: one line for each when it ends."""

    def hear(self, event: Event) -> None:
        super().hear(event)
        if isinstance(event, GameOver):
            self.line(f"game {event.game}: {ending(self.games[event.game])}")
