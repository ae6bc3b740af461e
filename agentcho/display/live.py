"""Runs in a terminal: words as they are spoken, finished messages above them, tables at the end.

Does not know: where events come from.
"""

from __future__ import annotations

from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from agentcho.display.safe import visible
from agentcho.display.screen import Screen, summary
from agentcho.display.sheet import table
from agentcho.display.speech import Palette, Speech, rich
from agentcho.events import Began, Ended, Event, Joined, Over, Token
from agentcho.runtime import Played


class _Live(Screen):
    def __init__(self, title: str, console: Console) -> None:
        super().__init__()
        self.console = console
        console.print(Text(title, style="bold"), "")

    def close(self, played: Played) -> None:
        for each in self.sheets():
            self.console.print(table(each), "")
        self.console.print(Text(visible("\n".join(summary(played))), style="dim"))


class LiveTalk(_Live):
    """One game: messages under way below, finished ones above."""

    def __init__(self, title: str, console: Console) -> None:
        super().__init__(title, console)
        self._palette = Palette()
        self._speaking: dict[str, Speech] = {}
        self._live = Live(console=console, get_renderable=self._under_way, refresh_per_second=12, transient=True)

    def hear(self, event: Event) -> None:
        super().hear(event)
        match event:
            case Joined(agent=agent):
                _ = self._palette[agent]
            case Began(id=id):
                self._speaking[id] = Speech(event.author, event.kind, "assistant", event.audience, event.header, "")
            case Token(id=id, text=text) if id in self._speaking:
                speech = self._speaking[id]
                self._speaking[id] = speech._replace(text=speech.text + text)
            case Ended(entry=entry):
                self._speaking.pop(entry.message.id, None)
                self.refresh()  # what is printed now is no longer under way
                self.console.print(rich(Speech.of(entry), self._palette))

    def refresh(self) -> None:
        """Paint now; otherwise it is done a dozen times a second."""
        self._live.refresh()

    def _under_way(self) -> Group:
        return Group(*(rich(speech, self._palette, cursor=True) for speech in list(self._speaking.values())))

    def __enter__(self) -> LiveTalk:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._speaking.clear()
        self._live.stop()


class LiveGames(_Live):
    """Several games: how many are over, and how many messages were said."""

    def __init__(self, title: str, console: Console, games: int) -> None:
        super().__init__(title, console)
        columns = (
            TextColumn("games"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[said]} messages"),
            TextColumn("{task.fields[rate]}left:"),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True)
        self._task = self._progress.add_task("games", total=games, said=0, rate="")

    def hear(self, event: Event) -> None:
        super().hear(event)
        if isinstance(event, Ended):
            self._progress.update(self._task, said=len(self.entries))
        elif isinstance(event, Over):
            self._progress.advance(self._task)
            speed = self._progress.tasks[0].finished_speed or self._progress.tasks[0].speed
            self._progress.update(self._task, rate=f"{60 * speed:.1f} games/min, " if speed else "")

    def __enter__(self) -> LiveGames:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
