"""Where the messages of a call stand: places asked for, counted to absolute positions.

Does not know: encodings, modes.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentcho.errors import BadOffsets
from agentcho.visibility import Place, ReadSet


def places_of(reads: ReadSet) -> tuple[Place, ...]:
    """The places asked for, one a message and then the new one's."""
    return (*(read.at for read in reads.reads), reads.new_at)


def count(reads: ReadSet, lengths: Sequence[int | None], first: int) -> list[int | None]:
    """Positions of all messages and then of the new one, as far as `lengths` (tokens, None: not known) tell;
    None beyond, which is right after the preceding one. `first` is where the first stands by default.

    `BadOffsets`: one is placed after a message that does not stand before it.
    """
    end: int | None = first
    ends, positions = dict[str, int](), list[int | None]()
    for read, length in zip(reads.reads, lengths, strict=True):
        start = _position(read.at, end, ends)
        positions.append(start)
        end = None if start is None or length is None else start + length
        if end is not None:
            ends[read.id] = end
    return [*positions, _position(reads.new_at, end, ends)]


def _position(place: Place, end: int | None, ends: dict[str, int]) -> int | None:
    if place is None or isinstance(place, int):
        return end if place is None else place
    if place.id not in ends:
        raise BadOffsets(f"a message is placed after {place.id!r}, which stands nowhere before it in the view")
    return ends[place.id] + place.plus
