"""The events of a run, for the display, the record and other listeners.

Games only report what happens, so that a listener can be added without changing them.
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
    """A message is being generated. `thought` marks a model's reasoning before another message."""

    game: int
    id: str
    author: str
    kind: Kind
    audience: Audience
    header: str
    thought: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """The piece of a message that a step generated: a token, if any, and the text that it adds, which may be empty."""

    game: int
    id: str
    text: str
    token: int | None = None


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The first token of a message was generated, and its `Token` event follows.

    The entry has everything known of the message so far, with the encodings that it attends to. For a model behind an
    API, its prompt is about to be sent.
    """

    entry: TranscriptEntry


@dataclass(frozen=True, slots=True)
class Ended:
    """A message has ended, with its provenance. It is complete, or `entry.ended` tells why not."""

    entry: TranscriptEntry


@dataclass(frozen=True, slots=True)
class Encoded:
    """At the end of a game, encodings that are on no message's line of the transcript."""

    encodings: EncodingsEntry


@dataclass(frozen=True, slots=True)
class Typed:
    """A person has typed the text of a message. It is encoded next."""

    game: int
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Calling:
    """A tool call of an agent is about to be made.

    Attributes:
        game: Number of the game.
        id: Id of the message that makes the call.
        use: The tool, and what was declared of it.
        release: Whether the call may run whatever its arguments were made from.
        idempotent: Whether calling twice does no more than calling once.
        attempt: How often the game has begun.
    """

    game: int
    id: str
    use: ToolUse
    release: bool
    idempotent: bool
    attempt: int


@dataclass(frozen=True, slots=True)
class Called:
    """A tool call has ended, normally or not, after some seconds."""

    game: int
    id: str
    how: str
    seconds: float
    attempt: int


Event = Joined | Began | Typed | FirstToken | Token | Ended | Encoded | Calling | Called | GameOver
Sink = Callable[[Event], None]
"""Receives events in order. Tokens can come some steps of the engine after they were generated, at most about 20 ms:
to act on them in a game, use `on_token` or `Agent.stream`."""


class Stepped(NamedTuple):
    """One step of an engine, which all games of a run share.

    Attributes:
        engine: Name of the model. None for the run's own.
        number: Number of the step.
        fed: Tokens that it fed.
        sampled: Tokens that it sampled.
        finished: Encodings that it finished.
        failed: Calls that it failed.
        held: Share of the store that is held after it.
        began: When it began, in seconds of `time.perf_counter`.
        ended: When it ended, in seconds of `time.perf_counter`.
    """

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
    """A sink that receives engine steps too."""

    def __call__(self, event: Event, /) -> None: ...
    def stepped(self, step: Stepped) -> None: ...


class Counting:
    """A sink that reports how many games are over.

    It calls `tell` with `done` of `of` first, and then at the end of each message and each game. `what` may be changed.
    """

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
