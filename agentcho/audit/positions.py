"""Compares the positions in receipts with the requested ones: a position must not reveal hidden messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentcho.audit.cones import Cones
from agentcho.provenance.labels import EncodingRecord
from agentcho.provenance.views import After, Place
from agentcho.records.transcript import TranscriptEntry


class RevealingPosition(NamedTuple):
    """A position that reveals something. `piece` is the index in the record's context; None: the record's own start.

    `after` is the message that it counts from; None: the position is unexplained, so it reveals something to everyone.
    """

    piece: int | None
    after: str | None


class Positions:
    """The revealing positions of one game, by encoding."""

    def __init__(self, cones: Cones) -> None:
        self._cones = cones
        self._starts = {id: record.receipt.start for id, record in cones.records.items()}
        self._odd = {id: odd for id, record in cones.records.items() if (odd := self._of(record))}

    def at(self, id: int, reader: str, piece: int | None = None) -> RevealingPosition | None:
        """The first position of encoding `id` that reveals something to `reader`; with `piece`, only that piece and the
        start are considered."""
        for odd in self._odd.get(id, ()):
            if piece is not None and odd.piece not in (piece, None):
                continue
            if odd.after is None or not self._may_read(odd.after, reader):
                return odd
        return None

    def within(self, id: int, reader: str) -> tuple[int, RevealingPosition] | None:
        """The nearest encoding among `id` and those it attended to, directly or transitively, with a position that
        reveals something to `reader`."""
        if not self._odd:
            return None
        felt = ((each, self.at(each, reader)) for each in self._cones.walk(id).order if each in self._odd)
        return next(((each, odd) for each, odd in felt if odd is not None), None)

    def _may_read(self, message: str, reader: str) -> bool:
        known = self._cones.messages.get(message)
        return known is not None and known.audience.includes(reader)

    def _of(self, record: EncodingRecord) -> tuple[RevealingPosition, ...]:
        """The revealing positions of a record. If several calls may have requested it, those under the call that leaves
        the fewest unexplained."""
        tries = (tuple(self._against(record, asked)) for asked in self._asked(record))
        return min(tries, key=lambda odds: sum(odd.after is None for odd in odds))

    def _asked(self, record: EncodingRecord) -> Iterator[Sequence[Place] | None]:
        """The places that may have been requested, one per piece of the context and then the start: those of the
        message's own entry, or, for a repaired encoding, those of each call whose prompt may contain it."""
        entry = self._cones.entries.get(record.message)
        yield _own(record, entry, self._cones) if record.recipe == "author" and entry else None
        if record.recipe == "repaired":
            for each in self._cones.entries.values():
                if each.message.author == record.caller and (places := _within(record, each, self._cones)):
                    yield places

    def _against(self, record: EncodingRecord, asked: Sequence[Place] | None) -> Iterator[RevealingPosition]:
        if not asked or all(place is None for place in asked):
            return self._unasked(record)
        return self._placed(record, asked)

    def _unasked(self, record: EncodingRecord) -> Iterator[RevealingPosition]:
        """Like `_placed` for a record without requested places, the common case: all but usual positions are
        unexplained."""
        end = rightmost = record.receipt.bos
        for index, (id, offset, length) in enumerate(record.receipt.context):
            if offset != end and offset != self._starts.get(id):
                yield RevealingPosition(index, None)
            end = offset + length
            rightmost = end if index == 0 else max(rightmost, end)
        if record.receipt.start not in (end, rightmost):
            yield RevealingPosition(None, None)

    def _placed(self, record: EncodingRecord, asked: Sequence[Place]) -> Iterator[RevealingPosition]:
        ends: dict[str, int] = {}
        end = record.receipt.bos
        pieces = record.receipt.context
        for index, piece in enumerate(pieces):
            made = self._starts.get(piece.id)
            yield from _odd(index, piece.offset, usual=(end, made), place=asked[index], ends=ends)
            end = piece.offset + piece.length
            if piece.id in self._cones.records:
                ends[self._cones.records[piece.id].message] = end
        rightmost = max((piece.offset + piece.length for piece in pieces), default=end)
        yield from _odd(None, record.receipt.start, usual=(end, rightmost), place=asked[-1], ends=ends)


def _odd(
    index: int | None, offset: int, *, usual: tuple[int | None, ...], place: Place, ends: dict[str, int]
) -> Iterator[RevealingPosition]:
    """Judge one position: it counts from a message, or must be a `usual` one or the requested constant. Usual positions
    depend only on what is attended to there: right after the previous piece, where the piece was made, or after the
    rightmost piece."""
    wanted: int | None
    match place:
        case After(id, plus):
            yield RevealingPosition(index, id)
            wanted = ends[id] + plus if id in ends else None
        case "rightmost":
            yield from (RevealingPosition(index, id) for id in ends)
            wanted = max(ends.values(), default=usual[0])
        case _:
            wanted = place
    if offset not in (*usual, wanted):
        yield RevealingPosition(index, None)


def _attended(record: EncodingRecord, cones: Cones) -> tuple[str, ...]:
    return tuple(cones.records[piece.id].message for piece in record.receipt.context if piece.id in cones.records)


def _within(record: EncodingRecord, entry: TranscriptEntry, cones: Cones) -> Sequence[Place]:
    """The places that a call requested, up to a message of its prompt; empty if it requested none, or if its prompt
    does not begin with what the record attended to."""
    path = (*_attended(record, cones), record.message)
    whole = len(path) == len(record.receipt.context) + 1 and entry.message.parents[: len(path)] == path
    return places_of(entry)[: len(path)] if whole else ()


def _own(record: EncodingRecord, entry: TranscriptEntry, cones: Cones) -> Sequence[Place] | None:
    """The requested places, one per piece of the context and then the start; None if there are none, or if the context
    does not match the message's parents."""
    attended = _attended(record, cones)
    places = places_of(entry)
    fits = attended == entry.message.parents and len(places) == len(attended) + 1
    return places if fits and len(attended) == len(record.receipt.context) else None


def places_of(entry: TranscriptEntry) -> tuple[Place, ...]:
    """The requested places: those of the act, or else those stored with the message. Empty if there are none."""
    message = entry.message
    if entry.act.places:
        return entry.act.places
    if message.offsets is None and message.new_offset is None:
        return ()
    return (*(message.offsets or (None,) * len(message.parents)), message.new_offset)


def raw_offsets(entries: Sequence[TranscriptEntry]) -> int:
    """The number of positions given as plain numbers: constants of the scenario, which the audit trusts."""
    return sum(isinstance(place, int) for entry in entries for place in places_of(entry))
