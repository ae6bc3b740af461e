"""What a driver asks of its workers and what they answer, and the contract of whatever keeps them.

All of it can be pickled. Does not know: how games are played, what keeps the workers.
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

    `scenario` is a name from the library or a file in the worker's folder, `options` are as its class takes them.
    `sources` are the digests of the files of the scenario and of its agents on the driver. `at_once` games are played
    side by side on a machine (None: as many as the store has room for). `retries`: how often a game is played again on
    the same worker that a transient error ended. `heard`: what somebody hears of, beside the
    ends of games: nothing, each message, or each message with the encodings of its line.
    `met`: headers and texts that an engine has to meet which knows no words.
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
    """One game to play: its number, its tasks, ids of the words that are not to be sampled, by message, and what was
    said in it, and which calls of tools were begun, when it was begun before."""

    game: int
    tasks: tuple[Task, ...] = ()
    forced: Mapping[str, tuple[int, ...]] = {}
    before: tuple[TranscriptEntry, ...] = ()
    calls: BegunCalls = BegunCalls()


class WorkerHello(NamedTuple):
    """A worker is there: on which machine, as which process, with which versions of what decides words."""

    node: str
    process: int
    versions: Mapping[str, str]

    def __str__(self) -> str:
        return f"the worker on {self.node}"


class WorkerReady(NamedTuple):
    """A worker is ready for games of a piece of work, on engines with these fingerprints: that of the run's own model,
    and those of others by name."""

    engine: dict[str, str]
    others: dict[str, dict[str, str]]


class WorkerRefused(NamedTuple):
    """A worker cannot take part: the class and the words of the error, and what a command exits with."""

    kind: str
    what: str
    code: int = 2


class GameDone(NamedTuple):
    """A game that is over: its cast, role by agent, the lines of its transcript that no note had, how it ended; of one
    that failed, what went wrong. `events` are its messages in their order, where somebody hears of them."""

    over: GameOver
    cast: Mapping[str, str] = {}
    lines: bytes = b""
    events: tuple[Event, ...] = ()
    fault: GameFault | None = None


class ToolCallNote(NamedTuple):
    """A call of a tool in a game that is not over, before it is made or once it has ended: what was said since the note
    before, and its lines. A call is made when the worker is asked for its next report: then this one is on record."""

    number: int
    game: int
    said: tuple[TranscriptEntry, ...]
    event: Calling | Called | None = None
    lines: bytes = b""


class WorkerReport(NamedTuple):
    """What came of a worker's games since its last report. `wants`: how many more it can take; `steps`: of its engine,
    and `most`: games side by side, both since its work began. `notes`: calls of tools."""

    done: tuple[GameDone, ...]
    wants: int
    steps: int = 0
    most: int = 0
    notes: tuple[ToolCallNote, ...] = ()


class WorkerLost(NamedTuple):
    """In place of an answer: the worker is gone, or is no use any more. What it was dealt may be dealt to others."""

    why: str


Answer = WorkerHello | WorkerReady | WorkerRefused | WorkerReport | WorkerLost


class WorkerPool(Protocol):
    """Keeps workers, each a `Worker` in a process of its own. Nothing but `answers` ever waits."""

    def start(self) -> int:
        """Ask for a worker, which says hello once it is there. Returns its number, never one that was used before."""
        ...

    def call(self, worker: int, method: str, *given: Any) -> None:
        """Call a method of a worker, which has no other call under way."""
        ...

    def answers(self, seconds: float) -> Sequence[tuple[int, Answer]]:
        """The answers that are there, each with its worker; waits until there is one, or for so many seconds."""
        ...

    def stop(self, worker: int) -> None:
        """End a worker; nothing is heard of it any more. No-op where it is gone."""
        ...
