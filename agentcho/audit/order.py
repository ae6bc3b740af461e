"""Finds readers that can infer from the order of messages how long others' private messages were.

Two messages that a reader may read race if nothing awaited makes one of them end before the other is requested, so that
their order may differ between plays of the same code. Their order then depends on how long all messages before either
took, and reveals something about those among them that the reader may not read.

The input is what each act awaited, and rounds, whose moves come out in a fixed order. Records without this information
(of earlier versions, traces) cannot be judged. Independent of encodings and of what was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from agentcho.message import SCENARIO, Audience
from agentcho.provenance.views import Act
from agentcho.records.transcript import TranscriptEntry


class Raced(NamedTuple):
    """A reader can infer from the place of `message` among others how long `secrets` of `owner` were."""

    reader: str
    owner: str
    message: str
    secrets: tuple[str, ...]


class _Unit(NamedTuple):
    """What comes out at one moment: a message, or all messages of a round. Sets are bit masks by index among the
    compared messages: `own` are its messages, `behind` these and all that precede them."""

    entries: tuple[int, ...]
    own: int
    behind: int


class _Span(NamedTuple):
    """Consecutive units, as a binary tree. `union` are the messages that any of them has in `behind`, `common` those
    that all of them have; a span of one unit has no `halves`."""

    first: _Unit
    union: int
    common: int
    halves: tuple[_Span, ...] = ()


def known(entries: Iterable[TranscriptEntry]) -> bool:
    """Whether each message records what was awaited before it."""
    return all(entry.act.after is not None for entry in entries)


def overlapped(entries: Iterable[TranscriptEntry]) -> bool:
    """Whether a decode was requested before an earlier one had ended, or whether this is unknown."""
    spoken = [entry.usage for entry in entries if entry.message.kind == "decode"]
    times = sorted((usage.at, usage.at + usage.seconds) for usage in spoken if usage.at is not None)
    return len(times) < len(spoken) or any(one[1] > other[0] for one, other in pairwise(times))


def raced(entries: Sequence[TranscriptEntry], readers: Iterable[str]) -> Iterator[Raced]:
    """The races of one attempt at a game, by the messages whose place reveals something. `entries` are all its
    entries."""
    yield from _Level(entries, list(range(len(entries))), 0).raced(sorted(readers))


class _Level:
    """The messages of one level, such as one move of a round; `depth` is the number of rounds around it."""

    def __init__(self, entries: Sequence[TranscriptEntry], places: Sequence[int], depth: int) -> None:
        self._entries = [entries[place] for place in places]
        self._depth = depth
        self._rounds: dict[int, list[int]] = {}
        for place, entry in enumerate(self._entries):
            for move in entry.act.moves[depth:]:
                self._rounds.setdefault(move.round, []).append(place)
        self._groups: dict[int | str, list[int]] = {}
        for place, entry in enumerate(self._entries):
            key = entry.act.moves[depth].round if len(entry.act.moves) > depth else entry.message.id
            self._groups.setdefault(key, []).append(place)

    def raced(self, readers: Sequence[str]) -> Iterator[Raced]:
        """The races at this level, and within each move of its rounds."""
        if not self._one_by_one():
            yield from self._compared(readers)
        for key, places in self._groups.items():
            if isinstance(key, str):
                continue
            yield from self._race(places, readers)
            moves: dict[int, list[int]] = {}
            for place in places:
                moves.setdefault(self._entries[place].act.moves[self._depth].number, []).append(place)
            for own in moves.values():
                yield from _Level(self._entries, own, self._depth + 1).raced(readers)

    def _one_by_one(self) -> bool:
        """Whether each unit waited for the one before it. This is the usual case, in which nothing is compared."""
        for (before, _), (_, places) in pairwise(self._groups.items()):
            acts = (self._entries[place].act for place in places)
            if not any(before in _waited_for(act) for act in acts):
                return False
        return True

    # -- concurrent messages -------------------------------------------------------------------------------

    def _compared(self, readers: Sequence[str]) -> Iterator[Raced]:
        places = {entry.message.id: place for place, entry in enumerate(self._entries)}
        self._past = list[int]()
        for entry in self._entries:
            self._past.append(self._before(entry, places))
        units = [self._unit(group) for group in self._groups.values()]
        self._timed = _bits(n for n, entry in enumerate(self._entries) if entry.message.kind == "decode")
        for reader in readers:
            yield from self._of(reader, units)

    def _before(self, entry: TranscriptEntry, places: dict[str, int]) -> int:
        """The compared messages that ended before a message was requested; their lines stand before its own."""
        act = entry.act
        found = 0
        for one in (*_waited_for(act), *(entry.message.parents if act.named else ())):
            for place in [places[one]] if one in places else self._rounds.get(one, ()) if isinstance(one, int) else ():
                found |= 1 << place
                found |= self._past[place] if place < len(self._past) else 0
        return found

    def _unit(self, places: Sequence[int]) -> _Unit:
        own = _bits(places)
        behind = 0
        for place in places:
            behind |= self._past[place]
        return _Unit(tuple(places), own, own | behind)

    def _of(self, reader: str, units: Sequence[_Unit]) -> Iterator[Raced]:
        hidden = self._timed & _bits(
            n for n, entry in enumerate(self._entries) if not entry.message.audience.includes(reader)
        )
        read = [unit for unit in units if self._shown(unit, reader)]
        if not (hidden and read):
            return
        whole = _span(read)
        for unit in read:
            wanted = unit.behind & hidden
            told = 0
            for other in self._unfixed(unit, whole) if wanted else ():
                told |= self._told(unit, other, wanted)
                if told == wanted:
                    break
            yield from self._named(reader, unit, told)

    def _unfixed(self, unit: _Unit, span: _Span) -> Iterator[_Unit]:
        """The units of a span whose order with `unit` is not fixed. If `unit` waited for every decode that any unit of
        the span waited for, or each of them for every decode that `unit` waited for, the order of all is fixed."""
        if not span.union & ~unit.behind & self._timed or not unit.behind & ~span.common & self._timed:
            return
        for half in span.halves:
            yield from self._unfixed(unit, half)
        if not span.halves and not self._fixed(unit, span.first):
            yield span.first

    def _shown(self, unit: _Unit, reader: str) -> bool:
        return any(_reads(self._entries[place], reader) for place in unit.entries)

    def _fixed(self, one: _Unit, other: _Unit) -> bool:
        """Whether the order of two units is fixed: one was out before a message of the other was requested, or every
        decode that one waited for, its own included, the other waited for too."""
        for first, second in ((one, other), (other, one)):
            if any(not first.own & ~self._past[place] for place in second.entries):
                return True
            if not first.behind & ~second.behind & self._timed:
                return True
        return False

    def _told(self, unit: _Unit, other: _Unit, wanted: int) -> int:
        """The wanted messages that the order of two units depends on. A message that precedes everything that only one
        of the two waited for is left out, because it delays both alike."""
        both = wanted & other.behind
        if both:
            common = both
            for place in _places(unit.behind ^ other.behind):
                common &= self._past[place]
            wanted &= ~common
        return wanted

    def _named(self, reader: str, unit: _Unit, told: int) -> Iterator[Raced]:
        place = next((place for place in unit.entries if _reads(self._entries[place], reader)), unit.entries[0])
        yield from self._tells(reader, place, _places(told))

    def _tells(self, reader: str, place: int, secrets: Iterable[int]) -> Iterator[Raced]:
        owners: dict[str, list[str]] = {}
        for secret in secrets:
            message = self._entries[secret].message
            owners.setdefault(message.author or SCENARIO, []).append(message.id)
        for owner, ids in owners.items():
            yield Raced(reader, owner, self._entries[place].message.id, tuple(ids))

    # -- races started by the code -------------------------------------------------------------------------

    def _race(self, places: Sequence[int], readers: Sequence[str]) -> Iterator[Raced]:
        """The races among the moves of a `Game.first`. It ends with its first finished move, so a complete message in
        it reveals how long the others' messages were."""
        if not any(self._entries[place].act.moves[self._depth].race for place in places):
            return
        for reader in readers:
            out = [place for place in places if _reads(self._entries[place], reader)]
            timed = (place for place in places if self._entries[place].message.kind == "decode")
            hidden = [place for place in timed if not self._entries[place].message.audience.includes(reader)]
            if out and hidden and len({self._entries[n].act.moves[self._depth].number for n in (*out, *hidden)}) > 1:
                yield from self._tells(reader, out[0], hidden)


def _reads(entry: TranscriptEntry, reader: str) -> bool:
    """Whether a message came out and the reader may read it."""
    audience: Audience = entry.message.audience
    return entry.ended is None and audience.includes(reader)


def _waited_for(act: Act) -> tuple[str | int, ...]:
    """What had ended before the first token of a message: what was awaited, and the thought before it."""
    return (*(act.after or ()), *(() if act.thought is None else (act.thought,)))


def _span(units: Sequence[_Unit]) -> _Span:
    """The span of one or more units."""
    first = units[0]
    if len(units) == 1:
        return _Span(first, first.behind, first.behind)
    middle = len(units) // 2
    one, other = _span(units[:middle]), _span(units[middle:])
    return _Span(first, one.union | other.union, one.common & other.common, (one, other))


def _bits(places: Iterable[int]) -> int:
    found = 0
    for place in places:
        found |= 1 << place
    return found


def _places(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low
