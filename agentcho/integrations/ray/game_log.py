"""Keeps what a worker collects of one game until it is over: its cast, the lines of its transcript, its messages as
events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentcho.events import Called, Calling, Encoded, Ended, Event, Joined
from agentcho.integrations.ray.work import Heard
from agentcho.records.files import encoded_lines
from agentcho.records.transcript import AllSeals, TranscriptEntry

NoteCall = Callable[[Calling | Called | None, tuple[TranscriptEntry, ...], bytes], None]
"""Receives a tool call event (None for the message of its result), the messages since the last note, and their
lines."""


class GameLog:
    """The messages of one game, each as a line, and as an event if that is wanted. `note` receives tool calls at once,
    with the lines until then; `lines` has those since."""

    def __init__(self, wanted: Heard, note: NoteCall) -> None:
        self._wanted, self._note = wanted, note
        self._since: list[TranscriptEntry] = []
        self.cast = dict[str, str]()
        self.lines = list[dict[str, Any]]()
        self.events = list[Event]()
        self._seals = AllSeals()

    def __call__(self, event: Event) -> None:
        match event:
            case Joined(agent=agent, role=role):
                self.cast[agent] = role
                self._keep(event)
            case Ended(entry=entry):
                self.lines.append(entry.to_json(self._seals.of(entry)))
                without = entry._replace(made=())
                self._keep(event, Ended(without))
                self._since.append(without)
                if entry.act.call is not None:
                    self._tell(None)
            case Calling() | Called():
                self._tell(event)
            case Encoded(encodings=encodings):
                self.lines.append(encodings.to_json(self._seals[encodings.game, encodings.attempt]))
                self._keep(event, Encoded(encodings._replace(made=())))

    def _tell(self, event: Calling | Called | None) -> None:
        """Note a tool call or its result, with the messages since the last note."""
        said, lines, self._since, self.lines = tuple(self._since), encoded_lines(self.lines), [], []
        self._note(event, said, lines)

    def _keep(self, whole: Event, without: Event | None = None) -> None:
        """Keep an event, with or without its encodings as wanted."""
        if self._wanted != "games":
            self.events.append(whole if without is None or self._wanted == "encodings" else without)
