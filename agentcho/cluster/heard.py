"""What a worker keeps of one game until it is over: its cast, the lines of its transcript, its messages as events.

Does not know: who writes the lines, who hears of the messages.
"""

from __future__ import annotations

from typing import Any

from agentcho.cluster.work import Heard
from agentcho.events import Encoded, Ended, Event, Joined
from agentcho.records.transcript import AllSeals


class GameHeard:
    """What is heard of one game; of its messages each as a line, and as an event where that is wanted."""

    def __init__(self, wanted: Heard) -> None:
        self._wanted = wanted
        self.cast, self.lines, self.events = dict[str, str](), list[dict[str, Any]](), list[Event]()
        self._seals = AllSeals()

    def __call__(self, event: Event) -> None:
        match event:
            case Joined(agent=agent, role=role):
                self.cast[agent] = role
                self._keep(event)
            case Ended(entry=entry):
                self.lines.append(entry.to_json(self._seals.of(entry)))
                self._keep(event, Ended(entry._replace(made=())))
            case Encoded(encodings=encodings):
                self.lines.append(encodings.to_json(self._seals[encodings.game, encodings.attempt]))
                self._keep(event, Encoded(encodings._replace(made=())))

    def _keep(self, whole: Event, without: Event | None = None) -> None:
        """Keep an event, as it is or without encodings."""
        if self._wanted != "games":
            self.events.append(whole if without is None or self._wanted == "encodings" else without)
