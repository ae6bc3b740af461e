"""Where the events of a run go: to its record, and to who listens.

Does not know: how a record is kept, who listens.
"""

from __future__ import annotations

from agentcho.events import Encoded, Ended, Event, Heard, Joined, Over, Sink, Token
from agentcho.records.record import RunRecord


class Told:
    """Where events go: to the record, if there is one, and to who listens; to them, of what is still being said, only
    once a `flush` has put it on record."""

    def __init__(self, record: RunRecord | None, sink: Sink | None) -> None:
        self._record, self._sink = record, sink
        self._waiting: list[Event] = []

    def __call__(self, event: Event) -> None:
        if self._record is not None:
            _write(self._record, event)
        if self._record is not None and isinstance(event, Heard | Token):
            self._waiting.append(event)
        elif self._sink is not None:
            self._sink(event)

    def flush(self) -> None:
        """Everything that was told is on record when this returns."""
        waiting, self._waiting = self._waiting, []
        if self._record is not None:
            self._record.flush()
        if self._sink is not None:
            for event in waiting:
                self._sink(event)


def _write(record: RunRecord, event: Event) -> None:
    match event:
        case Joined(agent=agent, role=role):
            record.joined(agent, role)
        case Heard(entry=entry):
            record.begun(entry)
        case Token(game=game, id=id, text=text, token=token):
            record.heard(game, id, token, text)
        case Ended(entry=entry):
            record.said(entry)
        case Encoded(encodings=encodings):
            record.encoded(encodings)
        case Over():
            record.over(event)
