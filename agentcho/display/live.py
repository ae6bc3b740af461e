"""Shows a run live in a terminal: words as they are generated, finished messages above them, tables at the end."""

from __future__ import annotations

from time import monotonic
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from agentcho.display.progress import Bars
from agentcho.display.safe import visible
from agentcho.display.screen import Screen, summary
from agentcho.display.speech import MessageView, Palette, rich
from agentcho.display.text_table import table
from agentcho.events import Began, Ended, Event, Joined, Token
from agentcho.games.runs.runtime import RunResult


class _Live(Screen):
    moves = True

    def __init__(self, title: str, console: Console) -> None:
        super().__init__()
        self.console = console
        console.print(Text(title, style="bold"), "")

    def close(self, played: RunResult) -> None:
        for each in self.sheets():
            self.console.print(table(each), "")
        self.console.print(Text(visible("\n".join(summary(played))), style="dim"))


class LiveTalk(_Live):
    """Shows one game: running messages below, finished ones above."""

    def __init__(self, title: str, console: Console) -> None:
        super().__init__(title, console)
        self._palette = Palette()
        self._speaking: dict[str, MessageView] = {}
        self._live = Live(console=console, get_renderable=self._under_way, refresh_per_second=12, transient=True)

    def hear(self, event: Event) -> None:
        super().hear(event)
        self._live.start()
        match event:
            case Joined(agent=agent):
                _ = self._palette[agent]
            case Began(id=id):
                self._speaking[id] = MessageView(
                    author=event.author,
                    kind=event.kind,
                    role="assistant",
                    audience=event.audience,
                    header=event.header,
                    text="",
                    thought=event.thought,
                )
            case Token(id=id, text=text) if id in self._speaking:
                speech = self._speaking[id]
                self._speaking[id] = speech._replace(text=speech.text + text)
            case Ended(entry=entry):
                self._speaking.pop(entry.message.id, None)
                self.refresh()  # the message printed next is no longer shown as running
                self.console.print(rich(MessageView.of(entry), self._palette))

    def refresh(self) -> None:
        """Redraw now, in addition to the automatic refresh 12 times a second."""
        self._live.refresh()

    def _under_way(self) -> Group:
        return Group(*(rich(speech, self._palette, cursor=True) for speech in list(self._speaking.values())))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._speaking.clear()
        self._live.stop()


class LiveGames(_Live):
    """Shows several games: how many are over, and how many messages were said."""

    def __init__(self, title: str, console: Console, games: int) -> None:
        super().__init__(title, console)
        self._all = games
        self._bars = Bars("run", console, monotonic)

    def hear(self, event: Event) -> None:
        super().hear(event)
        self._bars.tell(f"games ({len(self.entries)} messages)", len(self.games), self._all)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.clear()
