"""Messages between a driver and its workers, and the contract of a worker pool.

All of them can be pickled. Independent of how games are played and of Ray.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from agentcho.config import RunConfig
from agentcho.events import Called, Calling, Event, GameOver
from agentcho.games.play.game_faults import GameFault
from agentcho.games.play.journal import BegunCalls
from agentcho.records.transcript import TranscriptEntry
from agentcho.tasks import Task

Heard = Literal["games", "messages", "encodings"]


class WorkSpec(NamedTuple):
    """What all games of a run have in common.

    `scenario` is a name from the library or a file in the worker's folder, `options` are given to its class. `sources`
    are the digests of the source files of the scenario and its agents on the driver. `at_once` games are played
    concurrently on a machine (None: as many as the store has room for). `retries`: how often a game that a transient
    error ended is played again on the same worker. `heard`: what is reported besides the ends of games: nothing, each
    message, or each message with the encodings of its line. `met`: headers and texts to teach to an engine that knows
    no words.
    """

    scenario: str
    options: Mapping[str, Any]
    config: RunConfig
    sources: tuple[str, ...] = ()
    at_once: int | None = None
    retries: int = 0
    heard: Heard = "encodings"
    met: tuple[tuple[str, str], ...] = ()


class Assignment(NamedTuple):
    """One game to play: its number, its tasks, the token ids that are forced, by message, and, if it was begun before,
    its messages so far, the tool calls that were begun, and how often it has begun."""

    game: int
    tasks: tuple[Task, ...] = ()
    forced: Mapping[str, tuple[int, ...]] = {}
    before: tuple[TranscriptEntry, ...] = ()
    calls: BegunCalls = BegunCalls()
    begun: int = 0


class WorkerHello(NamedTuple):
    """A worker has started: its machine, its process, and its versions of everything that affects texts."""

    node: str
    process: int
    versions: Mapping[str, str]

    def __str__(self) -> str:
        return f"the worker on {self.node}"


class WorkerReady(NamedTuple):
    """A worker is ready for the games of a piece of work, on engines with these fingerprints: that of the run's own
    model, and those of the others by name."""

    engine: dict[str, str]
    others: dict[str, dict[str, str]]


class WorkerRefused(NamedTuple):
    """A worker cannot take part: the class and text of the error, and the exit code of a command."""

    kind: str
    what: str
    code: int = 2


class GameDone(NamedTuple):
    """A finished game: its cast (role by agent), the transcript lines that no note contained, how it ended, and, if it
    failed, what went wrong. `events` are its messages in order, if somebody listens."""

    over: GameOver
    cast: Mapping[str, str] = {}
    lines: bytes = b""
    events: tuple[Event, ...] = ()
    fault: GameFault | None = None


class ToolCallNote(NamedTuple):
    """A tool call in a running game, before it is made or after it has ended, with the messages since the previous
    note, and their lines. The call is made once the worker is asked for its next report, when this note is on
    record."""

    number: int
    game: int
    said: tuple[TranscriptEntry, ...]
    event: Calling | Called | None = None
    lines: bytes = b""


class WorkerReport(NamedTuple):
    """The results of a worker's games since its last report. `wants`: how many more games it can take. `steps` counts
    the steps of its engine, and `most` is the largest number of concurrent games, both since its work began. `notes`:
    tool calls."""

    done: tuple[GameDone, ...]
    wants: int
    steps: int = 0
    most: int = 0
    notes: tuple[ToolCallNote, ...] = ()


class WorkerLost(NamedTuple):
    """Takes the place of an answer: the worker is gone or unusable. Its games may be dealt to others."""

    why: str


Answer = WorkerHello | WorkerReady | WorkerRefused | WorkerReport | WorkerLost


class WorkerPool(Protocol):
    """Keeps workers, each a `Worker` in its own process. Only `answers` blocks."""

    def start(self) -> int:
        """Ask for a worker, which says hello once it is running. Returns its number, which is never reused."""
        ...

    def call(self, worker: int, method: str, *given: Any) -> None:
        """Call a method of a worker that has no other call in progress."""
        ...

    def answers(self, seconds: float) -> Sequence[tuple[int, Answer]]:
        """The answers that have come, each with its worker. Waits until there is one, but no longer than `seconds`."""
        ...

    def stop(self, worker: int) -> None:
        """End a worker; its answers are dropped. No-op if it is gone."""
        ...
