"""Sends the events of a run to its record first, then to the listener, and to the log.

The log, under `agentcho.game`, gets ids, counts and times, and no texts of messages. Independent of how games are
played.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from agentcho.events import (
    Began,
    Called,
    Calling,
    Encoded,
    Ended,
    Event,
    FirstToken,
    GameOver,
    Joined,
    Sink,
    Stepped,
    Token,
    Typed,
    Watching,
)
from agentcho.records.calls import CallLine, use_line
from agentcho.records.line_models import UsePart
from agentcho.records.record import RunRecord

GAME = logging.getLogger("agentcho.game")


class RecordingSink:
    """Sends events to the record of a run, if there is one, and to `sink`.

    `sink` gets tokens only after a `flush` has recorded them. `confirmed` returns when everything so far is recorded,
    if that takes time.
    """

    def __init__(
        self, record: RunRecord | None, sink: Sink | None, confirmed: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._record = record
        self._sink = sink
        self.confirmed = confirmed
        self._waiting: list[Event] = []

    def __call__(self, event: Event) -> None:
        if self._record is not None:
            write(self._record, event)
        if self._record is not None and isinstance(event, FirstToken | Token):
            self._waiting.append(event)
        elif self._sink is not None:
            self._sink(event)

    @property
    def watch(self) -> Callable[[Stepped], None] | None:
        """The function that receives engine steps. None if there is none."""
        return self._sink.stepped if isinstance(self._sink, Watching) else None

    def flush(self) -> None:
        """Record all events so far, then pass the waiting ones to `sink`."""
        waiting, self._waiting = self._waiting, []
        if self._record is not None:
            self._record.flush()
        if self._sink is not None:
            for event in waiting:
                self._sink(event)


def write(record: RunRecord, event: Event) -> None:
    """Record an event."""
    match event:
        case Joined(agent=agent, role=role):
            record.joined(agent, role)
        case Typed(game=game, id=id, text=text):
            record.typed(game, id, text)
        case FirstToken(entry=entry):
            record.begun(entry)
        case Token(game=game, id=id, text=text, token=token):
            record.heard(game, id, token, text)
        case Ended(entry=entry):
            record.said(entry)
        case Encoded(encodings=encodings):
            record.encoded(encodings)
        case Calling():
            record.called(begun_line(event))
        case Called(game=game, id=id, how=how, seconds=seconds, attempt=attempt):
            record.called(CallLine(game=game, call=id, ended=how, seconds=seconds, attempt=attempt))
        case GameOver():
            record.over(event)


def begun_line(call: Calling) -> CallLine:
    """Return the line of a call before it is made."""
    return CallLine(
        game=call.game,
        call=call.id,
        tool=call.use.name,
        idempotent=call.idempotent,
        use=UsePart(**use_line(call.use)),
        release=call.release,
        attempt=call.attempt,
    )


def log(event: Event) -> None:
    """Log an event: ids, counts and times."""
    match event:
        case Joined(game=game, agent=agent):
            GAME.debug("game %d: %s joined", game, agent)
        case Began(game=game, id=id):
            GAME.debug("game %d: %s began", game, id)
        case Ended(entry=entry):
            message = entry.message
            GAME.debug(
                "game %d: %s ended, %s, %d tokens, %d fed, %d reused, first token %.3f s, %.3f s",
                message.game,
                message.id,
                message.words.stopped or message.kind,
                len(message.words.tokens),
                entry.usage.encoded,
                entry.usage.reused,
                entry.usage.ttft,
                entry.usage.seconds,
            )
        case GameOver(game=game, ended=ended, seconds=seconds):
            why = "at its end" if ended is None else f"early ({ended.partition(':')[0]})"
            GAME.info("game %d over %s, %.1f s", game, why, seconds)
