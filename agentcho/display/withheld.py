"""The display of a run in which people play: nothing until the run ends, then the outcome of each finished game.

Games that failed or were interrupted are not shown, because they can be resumed.
"""

from __future__ import annotations

from typing import IO

from rich.console import Console

from agentcho.display import Kind
from agentcho.display.live import LiveGames
from agentcho.display.plain import PlainTalk
from agentcho.display.screen import NoScreen, Screen
from agentcho.display.text_table import TextTable
from agentcho.events import Event


class _Withheld(Screen):
    def hear(self, event: Event) -> None:
        Screen.hear(self, event)

    def sheets(self) -> list[TextTable]:
        self.games = {number: over for number, over in self.games.items() if not over.failed}
        self.entries = [entry for entry in self.entries if entry.message.game in self.games]
        return super().sheets()


class WithheldLines(_Withheld, PlainTalk):
    """The display in plain lines."""

    moves = True


class WithheldTables(_Withheld, LiveGames):
    """The display for a terminal."""

    moves = True


def withheld(kind: Kind | None, title: str, file: IO[str]) -> Screen:
    """Return the screen of a run that people play; `kind` is as in `screen`."""
    console = Console(file=file, highlight=False, emoji=False, markup=False)
    if kind == "none":
        return NoScreen()
    if kind == "plain" or (kind is None and not console.is_terminal):
        return WithheldLines(title, file)
    return WithheldTables(title, console, 0)
