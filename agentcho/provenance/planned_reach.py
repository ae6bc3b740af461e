"""Predicts the cone of a call from the graph of messages, before anything is computed.

The cones are those of receipts, or larger if a run has several models. The ledger in `labels` has what was actually
attended. Independent of encodings and words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

from agentcho.config import ReusePolicy
from agentcho.message import Metadata
from agentcho.provenance.labels import Cone, MessageIndex
from agentcho.provenance.views import Read, ReadSet

Key = tuple[Literal["author", "audience"], str]
"""A message, as read by its author or by its audience."""


class PlacedMessage(Protocol):
    """A message with what its author read."""

    @property
    def metadata(self) -> Metadata: ...
    @property
    def reads(self) -> ReadSet: ...


class PlannedReach:
    """The planned cones of one game. `said` are its messages by id, each after its parents; it grows."""

    def __init__(self, reuse: ReusePolicy, said: Mapping[str, PlacedMessage]) -> None:
        self._said, self._roll = said, MessageIndex()
        self._baseline = reuse.mode == "baseline"
        self._enforcing = reuse.leakage == "enforce"
        self._cones: dict[Key, Cone] = {}

    def of(self, reads: ReadSet) -> Cone:
        """Every message that could influence a call with this read set."""
        over = self._roll.of(frozenset(read.id for read in reads.reads))
        if self._baseline:
            return over
        bits = over.bits
        for read in reads.reads:
            bits |= self._cone(self._key(reads.caller, read)).bits
        return Cone(self._roll, bits)

    def _key(self, reader: str | None, read: Read) -> Key:
        """The encoding through which a message is read: see `Resolver`."""
        author = self._said[read.id].metadata.author
        own = author is not None and author == reader and not read.public
        return ("author" if own or not self._enforcing else "audience"), read.id

    def _cone(self, key: Key) -> Cone:
        """The cone of an encoding. Uses an explicit stack, because a chain of messages may be as long as a game."""
        waiting = [key]
        while waiting:
            over = list(self._over(waiting[-1]))
            if waiting[-1] in self._cones:
                waiting.pop()
            elif lacking := [each for each in over if each not in self._cones]:
                waiting += lacking
            else:
                here = waiting.pop()
                self._cones[here] = self._roll.cone(here[1], (self._cones[each] for each in over))
        return self._cones[key]

    def _over(self, key: Key) -> Iterator[Key]:
        """The messages that a message was generated over, or for its audience those that all its readers may read."""
        recipe, id = key
        reads, whose = self._said[id].reads, self._said[id].metadata.audience
        for read in reads.reads:
            if recipe == "author":
                yield self._key(reads.caller, read)
            elif self._said[read.id].metadata.audience.covers(whose):
                yield "audience", read.id
