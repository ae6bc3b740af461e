"""Long cones in a file: a seal stands for one, so that a line is as long as what an encoding was made over, and no
longer.

The seal of an encoding is a digest of what it is of, of where it was made, and of the seals of all that it was made
over. Whoever reads works the cone out again from what those were, and takes it only where the seal fits: a cone whose
receipts have changed since, its own or any behind it, is empty, which no audit passes over. Does not know: files,
messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Set

from agentcho.calls.call import EncodingId, Receipt
from agentcho.flow.labels import EncodingRecord, Roll, adds_up, attended

LISTED = 64
"""A cone of so many messages is written out."""


class Seals:
    """Of one attempt at one game, its encodings in the order in which they were made."""

    def __init__(self) -> None:
        self._roll = Roll()
        self._known: dict[EncodingId, tuple[str, Set[str]]] = {}

    def close(self, record: EncodingRecord) -> str | None:
        """Take in what is written. Its seal, where that can stand for its cone; None: the cone has to be listed."""
        over = self._over(record.receipt)
        if over is None:
            return None
        seal = _seal(record, over)
        self._known[record.id] = seal, record.cone
        whole = adds_up(record.cone, record.message, (cone for _, cone in over))
        return seal if whole and len(record.cone) > LISTED else None

    def open(self, record: EncodingRecord, seal: str) -> EncodingRecord:
        """What was written without its cone, with it; with none where the seal does not fit."""
        over = self._over(record.receipt)
        if over is None or _seal(record, over) != seal:
            return record._replace(cone=frozenset())
        cone = self._roll.cone(record.message, (self._roll.of(cone) for _, cone in over))
        self._known[record.id] = seal, cone
        return record._replace(cone=cone)

    def listed(self, record: EncodingRecord) -> None:
        """Take in what was written with its cone."""
        over = self._over(record.receipt)
        if over is not None:
            self._known[record.id] = _seal(record, over), record.cone

    def _over(self, receipt: Receipt) -> list[tuple[str, Set[str]]] | None:
        """Seals and cones of all that an encoding was made over; None: something is not known."""
        found = [known for id in attended(receipt) if (known := self._known.get(id)) is not None]
        return found if len(found) == len(attended(receipt)) else None


def _seal(record: EncodingRecord, over: list[tuple[str, Set[str]]]) -> str:
    receipt = record.receipt
    places = [(offset, length) for _, offset, length in receipt.context]
    made = (record.message, record.recipe, record.caller, receipt.start, receipt.bos, receipt.base is None)
    whole = repr((made, places, [seal for seal, _ in over])).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(whole, digest_size=8, person=b"agentcho.cone").hexdigest()
