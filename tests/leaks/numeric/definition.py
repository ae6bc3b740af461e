"""Encodings by definition: a transcript's messages, encoded again from scratch by a stock model.

E(m): over what its author read, the author's own messages through E, others' through X, where they were placed. X(m):
over those of its parents that its whole audience may read, each through X, contiguously. Written from the design, and
computed from messages alone: audiences, parents, places, tokens. Must not use the engine or the resolver.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from agentcho.provenance.views import After, Place
from agentcho.records.transcript import TranscriptEntry
from tests.engine.oracle import Message, Oracle

Context = tuple[tuple[int, int], ...]


class Definition:
    """The messages of one game, encoded on demand. `first` is the position at which contexts begin."""

    def __init__(self, oracle: Oracle, entries: Iterable[TranscriptEntry], first: int) -> None:
        self._oracle, self._first = oracle, first
        self._entries = {entry.message.id: entry for entry in entries}
        self._made: dict[tuple[str, str], int] = {}

    def chosen_from(self, id: str) -> Tensor:
        """Log-probabilities `[tokens + 1, vocab]` from which the sampled tokens of a decode should have been chosen."""
        sampled = self._entries[id].message.sampled
        assert sampled is not None
        rows = self._oracle.logits(self._author(id))[sampled[0] - 1 : sampled[1]]
        return rows.log_softmax(-1)

    def _author(self, id: str) -> int:
        """E(m)."""
        if ("E", id) not in self._made:
            entry = self._entries[id]
            parents, places = entry.message.parents, entry.act.places
            *offsets, start = self._positions(parents, places or (None,) * (len(parents) + 1))
            context = tuple((self._read(entry, p), at) for p, at in zip(parents, offsets, strict=True))
            self._made["E", id] = self._oracle.add(Message(entry.message.tokens, start, context))
        return self._made["E", id]

    def _read(self, reader: TranscriptEntry, parent: str) -> int:
        own = self._entries[parent].message.author
        return self._author(parent) if own is not None and own == reader.message.author else self._audience(parent)

    def _audience(self, id: str) -> int:
        """X(m)."""
        if ("X", id) not in self._made:
            said = self._entries[id].message
            known = [self._entries[p].message for p in said.parents]
            readers = [m.id for m in known if m.audience.covers(said.audience)]
            *offsets, start = self._positions(readers, (None,) * (len(readers) + 1))
            context = tuple((self._audience(p), at) for p, at in zip(readers, offsets, strict=True))
            self._made["X", id] = self._oracle.add(Message(said.tokens, start, context))
        return self._made["X", id]

    def _positions(self, parents: Sequence[str], places: Sequence[Place]) -> list[int]:
        """The positions of the parents, and then of the message itself."""
        end, ends, found = self._first, dict[str, int](), list[int]()
        for id, place in zip((*parents, ""), places, strict=True):
            match place:
                case None:
                    start = end
                case After():
                    start = ends[place.id] + place.plus
                case "rightmost":
                    start = max([self._first, *ends.values()])
                case _:
                    start = place
            found.append(start)
            if id:
                end = ends[id] = start + len(self._entries[id].message.tokens)
        return found
