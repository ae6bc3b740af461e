"""The events of a run, for the display, the record and other listeners.

Games only report what happens, so that a listener can be added without changing them. Does not know: who listens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from agentcho.message import Audience, Kind
from agentcho.protocol.progress import ProgressCallback
from agentcho.provenance.views import ToolUse
from agentcho.records.record import GameOver as GameOver
from agentcho.records.transcript import EncodingsEntry, TranscriptEntry


@dataclass(frozen=True, slots=True)
class Joined:
    """An agent joined a game."""

    game: int
    agent: str
    role: str


@dataclass(frozen=True, slots=True)
class Began:
    """A message is being generated. `thought`: it is what a model thinks before another one."""

    game: int
    id: str
    author: str
    kind: Kind
    audience: Audience
    header: str
    thought: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """What a step generated of a message: a token, if any, and the text that it adds, which may be empty."""

    game: int
    id: str
    text: str
    token: int | None = None


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The first token of a message has come, and its `Token` event follows: all that is known of the message by now,
    with the encodings that it attends to. Of a model behind an API: its prompt is about to be sent."""

    entry: TranscriptEntry


@dataclass(frozen=True, slots=True)
class Ended:
    """A message has ended, with its provenance: it is whole, or `entry.ended` says why not."""

    entry: TranscriptEntry


@dataclass(frozen=True, slots=True)
class Encoded:
    """At the end of a game: encodings that are on no message's line of the transcript."""

    encodings: EncodingsEntry


@dataclass(frozen=True, slots=True)
class Typed:
    """A person has said what a message is to say; it is encoded next."""

    game: int
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Calling:
    """An agent's call of a tool, message `id`, is about to be made, the `attempt`th time that its game is begun.
    `release`: it is let run whatever its arguments were made from."""

    game: int
    id: str
    use: ToolUse
    release: bool
    idempotent: bool
    attempt: int


@dataclass(frozen=True, slots=True)
class Called:
    """It has ended, in whichever way, after so many seconds."""

    game: int
    id: str
    how: str
    seconds: float
    attempt: int


Event = Joined | Began | Typed | FirstToken | Token | Ended | Encoded | Calling | Called | GameOver
Sink = Callable[[Event], None]


class Stepped(NamedTuple):
    """A step of an engine, which all games of a run share: its `number`, the tokens it fed and sampled, the encodings
    it finished, the calls it failed, the share of the store that is held after it. `began` and `ended` are seconds of
    `time.perf_counter`. `engine`: the model's name (None: the run's own)."""

    engine: str | None
    number: int
    fed: int
    sampled: int
    finished: int
    failed: int
    held: float
    began: float
    ended: float


@runtime_checkable
class Watching(Protocol):
    """A sink that hears of engine steps too."""

    def __call__(self, event: Event, /) -> None: ...
    def stepped(self, step: Stepped) -> None: ...


class Counting:
    """A sink that calls `tell` with the number of games that are over, of `of`: `done` to begin with, and then at the
    end of each message and each game. `what` may change meanwhile."""

    def __init__(self, tell: ProgressCallback, of: int, done: int = 0, what: str = "games") -> None:
        self._tell = tell
        self._of = of
        self._done = done
        self.what = what
        tell(what, done, of)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Ended | GameOver):
            self._done += isinstance(event, GameOver)
            self._tell(self.what, self._done, self._of)
