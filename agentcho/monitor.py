"""The reference monitor: the label of every encoding of a game, and the check made before any key is gathered.

A label is the cone with its audiences, built from what is gathered and from nothing else. It belongs to an
encoding's id and to one game. Does not know: texts, tensors, how a context was chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentcho.errors import LabelMissing, LeakageError
from agentcho.message import Audience
from agentcho.request import EncodingId


class Mark(NamedTuple):
    """One message that could have influenced an encoding, and who may read it."""

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
        """Check and label. `LabelMissing`: something of the context has no label here; unknown is not clean."""
        label = frozenset({self._own})
        for parent in context:
            if parent not in self._labels:
                raise LabelMissing(str(self._clearance), parent)
            label |= self._labels[parent]
        for mark in sorted(label, key=lambda mark: mark.message):
            if not mark.audience.covers(self._clearance):
                raise LeakageError(str(self._clearance), (self._own.message, mark.message))
        self._labels[id] = label
