"""The messages of a run: read from its record on demand, or kept in memory while a run without a record is played.

Messages and their costs are kept. Encodings, which an audit needs, are only in records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Protocol

from agentcho.errors import RecordError
from agentcho.events import Encoded, Ended, Event, Joined, Sink
from agentcho.records.record import SavedRun
from agentcho.records.transcript import TranscriptEntry, by_attempt, carry

MOST = 50_000
"""The maximum number of messages kept of a run without a record."""
Games = Mapping[int, list[TranscriptEntry]]
"""The messages of each game's last attempt."""


class MessageSource(Protocol):
    """Something that has the messages of a run."""

    @property
    def games(self) -> Games:
        """All messages, read once. Raises `RecordBroken` if the record is damaged."""

    @property
    def cast(self) -> frozenset[str]:
        """The names of all agents."""


class RecordedMessages:
    """The messages of a record in its current state. It is read once."""

    def __init__(self, run: SavedRun) -> None:
        self._run = run

    @cached_property
    def games(self) -> Games:
        return {number: [*map(_slim, said)] for number, said in self._run.games().items()}

    @cached_property
    def cast(self) -> frozenset[str]:
        return named(self._run.info.cast, self.games)


class LiveMessages:
    """The messages of a run without a record, as a sink of its events that passes each event on to another `sink`.

    They must be read only after the run is over.
    """

    def __init__(self, most: int = MOST) -> None:
        self.sink: Sink | None = None
        self._most, self._entries = most, list[TranscriptEntry]()
        self._cast, self._lost = set[str](), 0

    def __call__(self, event: Event) -> None:
        match event:
            case Joined(agent=agent):
                self._cast.add(agent)
            case Ended(entry=entry):
                self._keep(entry)
            case Encoded(encodings=encodings):
                with suppress(KeyError):  # no message of its game is kept
                    carry(self._entries, encodings._replace(made=()))
        if self.sink is not None:
            self.sink(event)

    def _keep(self, entry: TranscriptEntry) -> None:
        if len(self._entries) < self._most:
            self._entries.append(_slim(entry))
        else:
            self._lost += 1

    @cached_property
    def games(self) -> Games:
        if self._lost:
            raise RecordError(
                f"the run had {self._most + self._lost} messages and no record, so only the first "
                f"{self._most} are kept; give out=FOLDER to record all of them"
            )
        found: dict[int, list[TranscriptEntry]] = {}
        for entry in self._entries:
            found.setdefault(entry.message.game, []).append(entry)
        return {number: by_attempt(said)[-1] for number, said in found.items()}

    @cached_property
    def cast(self) -> frozenset[str]:
        return named(self._cast, self.games)


def _slim(entry: TranscriptEntry) -> TranscriptEntry:
    return entry._replace(made=())


def named(cast: Iterable[str], games: Games) -> frozenset[str]:
    """Return the names of agents: the cast, authors and readers.

    Authors and readers are needed because the cast of a running run is not recorded yet.
    """
    found = set(cast)
    for entry in (entry for said in games.values() for entry in said):
        found |= {*filter(None, [entry.message.author]), *(entry.message.audience.members or ())}
    return frozenset(found)
