"""Where a receipt places things, held against what was asked for: a position must not tell what is hidden.

Does not know: who attends to what, which leaks there are otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentcho.audit.cones import Cones
from agentcho.message import Message
from agentcho.provenance import EncodingRecord
from agentcho.transcript import Entry
from agentcho.visibility import After, Place


class Odd(NamedTuple):
    """A position of a record that tells something: of that piece of its context, None: its own start.

    `after` is the message it counts from; None: nothing explains it, so it is odd for every reader.
    """

    piece: int | None
    after: str | None


class Positions:
    """The odd positions of one game, by encoding."""

    def __init__(self, cones: Cones) -> None:
        self._cones = cones
        self._odd = {id: odd for id, record in cones.records.items() if (odd := tuple(self._of(record)))}

    def at(self, id: int, reader: str, piece: int | None = None) -> Odd | None:
        """What `reader` feels in the positions of encoding `id`; with `piece`, of that one and the start alone."""
        for odd in self._odd.get(id, ()):
            if piece is not None and odd.piece not in (piece, None):
                continue
            if odd.after is None or not self._may_read(odd.after, reader):
                return odd
        return None

    def within(self, id: int, reader: str) -> tuple[int, Odd] | None:
        """The nearest encoding that `id` was made over, itself first, in whose positions `reader` feels something."""
        if not self._odd:
            return None
        felt = ((each, self.at(each, reader)) for each in self._cones.walk(id).order if each in self._odd)
        return next(((each, odd) for each, odd in felt if odd is not None), None)

    def _may_read(self, message: str, reader: str) -> bool:
        known = self._cones.messages.get(message)
        return known is not None and known.audience.includes(reader)

    def _of(self, record: EncodingRecord) -> Iterator[Odd]:
        entry = self._cones.entries.get(record.message)
        asked = _asked(record, entry, self._cones) if record.recipe == "author" and entry else None
        ends: dict[str, int] = {}
        end = int(record.receipt.bos)
        pieces = record.receipt.context
        for index, piece in enumerate(pieces):
            place = asked[index] if asked else None
            made = self._cones.records[piece.id].receipt.start if piece.id in self._cones.records else None
            yield from _odd(index, piece.offset, (end, made), place, ends)
            end = piece.offset + piece.length
            if piece.id in self._cones.records:
                ends[self._cones.records[piece.id].message] = end
        rightmost = max((piece.offset + piece.length for piece in pieces), default=end)
        yield from _odd(None, record.receipt.start, (end, rightmost), asked[-1] if asked else None, ends)


def _odd(
    index: int | None, offset: int, usual: tuple[int | None, ...], place: Place, ends: dict[str, int]
) -> Iterator[Odd]:
    """One position: it counts from a message, or else must be a `usual` one or the constant that was asked for. Usual
    are those that depend on nothing but what is attended to there: right after the one before, where the piece was
    made, after the rightmost of all."""
    wanted: int | None
    match place:
        case After(id, plus):
            yield Odd(index, id)
            wanted = ends[id] + plus if id in ends else None
        case "rightmost":
            yield from (Odd(index, id) for id in ends)
            wanted = max(ends.values(), default=usual[0])
        case _:
            wanted = place
    if offset not in (*usual, wanted):
        yield Odd(index, None)


def _asked(record: EncodingRecord, entry: Entry, cones: Cones) -> Sequence[Place] | None:
    """The places asked for, one a piece of the context and then the start; None where none was, or where the
    context is not what the message's parents say."""
    attended = tuple(cones.records[piece.id].message for piece in record.receipt.context if piece.id in cones.records)
    places = places_of(entry)
    fits = attended == entry.message.parents and len(places) == len(attended) + 1
    return places if fits and len(attended) == len(record.receipt.context) else None


def places_of(entry: Entry) -> tuple[Place, ...]:
    """The places that were asked for: those of the act, or else those that the message kept. Empty: none was."""
    message = entry.message
    if entry.act.places:
        return entry.act.places
    if message.offsets is None and message.new_offset is None:
        return ()
    return (*(message.offsets or (None,) * len(message.parents)), message.new_offset)


def raw_offsets(entries: Sequence[Entry]) -> int:
    """How many positions are plain numbers: constants of the scenario, which the audit takes at their word."""
    return sum(isinstance(place, int) for entry in entries for place in places_of(entry))


def hidden(message: Message, reader: str) -> bool:
    """Whether a message's audience leaves an agent out."""
    return not message.audience.includes(reader)
