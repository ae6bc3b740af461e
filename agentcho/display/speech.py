"""Formats one message: who speaks to whom, with words that not everyone may read dimmed and set apart.

Words of models and agents go into rich as plain text, never as markup, with control characters made visible.
Independent of when a message is shown.
"""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from agentcho.display.safe import inline, visible
from agentcho.message import Audience, Kind, natural
from agentcho.records.transcript import TranscriptEntry

UNDER_WAY = "under way"
"""The value of `ended` for a message that is still being generated."""
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


class MessageView(NamedTuple):
    """What is shown of a message, finished or not. `direct`: ids of messages that it read although its author may not.
    `thought`: it is the thought of a model before a message. `id`: its id, if that is shown."""

    author: str | None
    kind: Kind
    role: str
    audience: Audience
    header: str
    text: str
    direct: tuple[str, ...] = ()
    ended: str | None = None
    thought: bool = False
    id: str = ""

    @classmethod
    def of(cls, entry: TranscriptEntry) -> MessageView:
        """Return the view of a message that has ended."""
        m = entry.message
        thought = m.words.thought is not None
        return cls(
            author=m.author,
            kind=m.kind,
            role=m.role,
            audience=m.audience,
            header=m.header,
            text=m.text,
            direct=entry.direct,
            ended=entry.ended,
            thought=thought,
        )

    @property
    def private(self) -> bool:
        """Whether not everyone may read it."""
        return self.audience.members is not None

    @property
    def heading(self) -> str:
        """Who speaks to whom, in which role: `alice → everyone`, `alice (private system)`, `alice (private) → bob`,
        `alice (private thought)`; with its id `alice.3  alice → everyone`."""
        who = f"{inline(self.id)}  " * bool(self.id) + inline(self.author or "scenario")
        what = "thought" if self.thought else "" if self.kind == "decode" else inline(self.role)
        note = " ".join(filter(None, ("private" if self.private else "", what)))
        return f"{who} ({note}){self._whom}" if note else f"{who}{self._whom}"

    @property
    def _whom(self) -> str:
        """Its readers, without its author."""
        members = self.audience.members
        if members is not None and members == {self.author}:
            return ""
        others = ["everyone"] if members is None else sorted(members - {self.author}, key=natural) or ["nobody"]
        return f" → {inline(', '.join(others))}"

    @property
    def words(self) -> str:
        """Header and text, safe to print."""
        return visible(self.header + self.text)

    @property
    def leak(self) -> str:
        """The note on a direct leak, or an empty text."""
        return f"reads what is not for it: {inline(', '.join(self.direct))}" if self.direct else ""

    @property
    def end(self) -> str:
        """The note on an incomplete message, or an empty text."""
        if self.ended == UNDER_WAY:
            return "incomplete: the rest is not recorded yet"
        return f"{self.ended} here; nobody reads it" if self.ended else ""


def plain(speech: MessageView) -> str:
    """Return the message as text: the heading, then the words, with later lines indented."""
    notes = "".join(f"\n    [{note}]" for note in (speech.end, speech.leak) if note)
    return f"{speech.heading}: " + speech.words.replace("\n", "\n    ") + notes


class Palette:
    """Assigns a colour to each agent, in the order in which they are first seen."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}

    def __getitem__(self, agent: str | None) -> str:
        if agent is None:
            return "default"
        return self._given.setdefault(agent, COLOURS[len(self._given) % len(COLOURS)])


def rich(speech: MessageView, palette: Palette, cursor: bool = False) -> RenderableType:
    """Return the message for a terminal, followed by a blank line. `cursor`: it is still being generated."""
    colour = palette[speech.author]
    hushed = speech.private or speech.thought
    parts: list[RenderableType] = [Text(speech.heading, style=f"{'dim ' if hushed else 'bold '}{colour}")]
    words = Text(speech.words + ("▌" if cursor else ""), style="dim" if hushed else "")
    if hushed and speech.kind == "decode":
        words.stylize("italic")
    parts.append(Barred(words, colour) if hushed else Padding(words, (0, 0, 0, 2)))
    if speech.end:
        parts.append(Text(speech.end, style="yellow"))
    if speech.leak:
        parts.append(Text(speech.leak, style="bold red"))
    return Padding(Group(*parts), (0, 0, 1, 4 if hushed else 0))


def columns(line: str) -> int:
    """Return how many columns of a terminal a line takes."""
    return cell_len(line)


class Barred:
    """A renderable with a bar to the left of every line."""

    def __init__(self, inner: RenderableType, colour: str) -> None:
        self.inner = inner
        self.colour = colour

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        inner = options.update(width=max(1, options.max_width - 2))
        for line in console.render_lines(self.inner, inner, pad=False):
            yield Segment("┊ ", Style(color=self.colour, dim=True))
            yield from line
            yield Segment.line()
