"""The reference monitor: the label of every encoding of a game, and the check made before any key is gathered.

A label is the audiences of the cone, with a message of each, built from what is gathered and from nothing else. It
belongs to an encoding's id and to one game. Does not know: texts, tensors, how a context was chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentcho.calls.call import EncodingId
from agentcho.errors import LeakageError
from agentcho.message import Audience


class Mark(NamedTuple):
    """One message that could have influenced an encoding, the first by its id of all those of its audience."""

    message: str
    audience: Audience


class Monitor:
    """The labels of one game. Written and read where the engine steps; nowhere else."""

    def __init__(self) -> None:
        self._labels: dict[EncodingId, frozenset[Mark]] = {}

    def guard(self, message: str, audience: Audience, clearance: Audience) -> Check:
        """The guard of a call that encodes `message` for `clearance`, all of whom it must be fit for."""
        return Check(self._labels, Mark(message, audience), clearance)


class Check:
    """Refuses a context unless everyone in `clearance` may read all that is in its cone. See `request.Guard`."""

    def __init__(self, labels: dict[EncodingId, frozenset[Mark]], own: Mark, clearance: Audience) -> None:
        self._labels, self._own, self._clearance = labels, own, clearance

    def admit(self, id: EncodingId, context: Sequence[EncodingId]) -> None:
        """Check and label. `LeakageError`: something of the context has no label here; unknown is not clean."""
        first: dict[Audience, str] = {self._own.audience: self._own.message}
        for parent in context:
            if parent not in self._labels:
                raise LeakageError(str(self._clearance), (), parent)
            for mark in self._labels[parent]:
                first[mark.audience] = min(mark.message, first.get(mark.audience, mark.message))
        for message, audience in sorted(((m, a) for a, m in first.items()), key=lambda pair: pair[0]):
            if not audience.covers(self._clearance):
                raise LeakageError(str(self._clearance), (self._own.message, message))
        self._labels[id] = frozenset(Mark(message, audience) for audience, message in first.items())
