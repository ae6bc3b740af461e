"""Computes what may reach whom from the messages alone.

An independent implementation of the design's rules: who said what to whom, after reading what. Must not import
agentcho, and is independent of encodings, their ids, and how they are made.
"""

from __future__ import annotations

from typing import NamedTuple


class Said(NamedTuple):
    """One message. `audience` None is everyone, including later agents; `author` None is the scenario. Those of its
    `reads` that are in `public` were read as others than their author read them."""

    id: str
    author: str | None
    audience: frozenset[str] | None
    reads: tuple[str, ...]
    public: frozenset[str] = frozenset()


def may_read(agent: str, message: Said) -> bool:
    """Whether an agent is in the audience."""
    return message.audience is None or agent in message.audience


def at_least(wide: Said, narrow: Said) -> bool:
    """Whether all who may read `narrow`, now or later, may read `wide`."""
    if wide.audience is None:
        return True
    return narrow.audience is not None and narrow.audience <= wide.audience


class World:
    """All messages of one play, by id."""

    def __init__(self) -> None:
        self.said: dict[str, Said] = {}
        self._found: dict[tuple[str, str], frozenset[str]] = {}

    def view(self, reader: str) -> frozenset[str]:
        """The messages of G|reader."""
        return frozenset(id for id, message in self.said.items() if may_read(reader, message))

    def reach(self, id: str) -> frozenset[str]:
        """Everything that reached a message's own author: the message, everything it read, transitively."""
        return self._once("reach", id, [self.reach(read) for read in self._up("reach", id)])

    def public(self, id: str) -> frozenset[str]:
        """What may reach all readers of a message through it: follows the reads whose audience is at least as wide as
        that of the message that read them."""
        message = self.said[id]
        wide = [read for read in self._up("public", id) if at_least(self.said[read], message)]
        return self._once("public", id, [self.public(read) for read in wide])

    def own(self, id: str) -> frozenset[str]:
        """What reaches an author through its own message under enforcement: own messages in full, others' publicly."""
        author, public = self.said[id].author, self.said[id].public
        return self._once("own", id, [self.heard(author, read, read in public) for read in self._up("own", id)])

    def _up(self, how: str, id: str) -> tuple[str, ...]:
        """The reads of a message; empty if the result is already known."""
        return () if (how, id) in self._found else self.said[id].reads

    def _once(self, how: str, id: str, parts: list[frozenset[str]]) -> frozenset[str]:
        if (how, id) not in self._found:
            self._found[how, id] = frozenset({id}).union(*parts)
        return self._found[how, id]

    def heard(self, reader: str | None, id: str, public: bool = False) -> frozenset[str]:
        """What reaches a reader with one message under enforcement; `public`: read as others than its author do."""
        mine = not public and reader is not None and self.said[id].author == reader
        return self.own(id) if mine else self.public(id)

    def visible(self, reader: str) -> tuple[Said, ...]:
        """G|reader itself: its messages in order, each with the reads that the reader may know about."""
        seen = []
        for message in self.said.values():
            if may_read(reader, message):
                mine = message.author == reader
                reads = tuple(r for r in message.reads if mine or at_least(self.said[r], message))
                seen.append(message._replace(reads=reads))
        return tuple(seen)

    def direct(self, reader: str, reads: tuple[str, ...]) -> bool:
        """Whether the reader may not read one of these messages."""
        return any(not may_read(reader, self.said[id]) for id in reads)

    def carried(self, reader: str, reads: tuple[str, ...]) -> bool:
        """Whether the reader may not read one of these messages or something that had reached its author."""
        return any(not may_read(reader, self.said[up]) for id in reads for up in self.reach(id))
