"""Counts how much of a prompt was already encoded when it was read, and how much of that is at the place of its
encoding.

Independent of texts and of who may read what.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from agentcho.protocol.call import ContextEntry, EncodingId, Receipt


class ReuseCounts(NamedTuple):
    """Tokens of one prompt that were not encoded for it. `exact` are those at its beginning, each encoded over just
    what comes before it here and at this position; `by_message` are all others."""

    exact: int = 0
    by_message: int = 0


class EncodingPlaces:
    """Where the encodings of one game were made: over which others, and from which position on. An encoding is named by
    its message and its recipe; encodings of one name are the same."""

    def __init__(self) -> None:
        self._made: dict[EncodingId, tuple[str, bytes, int]] = {}

    def enter(self, id: EncodingId, name: str, receipt: Receipt) -> None:
        """Add a finished encoding."""
        over = b""
        for read in receipt.context:
            over = self._after(over, read)
        self._made[id] = name, over, receipt.start

    def forget(self, ids: Iterable[EncodingId]) -> None:
        """Remove dropped encodings."""
        for id in ids:
            self._made.pop(id, None)

    def reused(self, context: Sequence[ContextEntry], fresh: Container[EncodingId]) -> ReuseCounts:
        """Count the part of a context that was already there. `fresh` encodings were made for it."""
        exact = 0
        by_message = 0
        before = b""
        alike = True
        for read in context:
            alike = alike and self._made.get(read.id, ("", b"", -1))[1:] == (before, read.offset)
            length = 0 if read.id in fresh else read.length
            exact, by_message = exact + alike * length, by_message + (not alike) * length
            before = self._after(before, read) if alike else b""
        return ReuseCounts(exact, by_message)

    def _after(self, before: bytes, read: ContextEntry) -> bytes:
        """The key of everything up to a place, with this encoding as the last."""
        name = self._made[read.id][0] if read.id in self._made else f"unknown {read.id}"
        return hashlib.blake2b(f"{read.offset} {name}".encode(), key=before, digest_size=16).digest()
