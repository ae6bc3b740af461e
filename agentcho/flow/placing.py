"""Where the messages of a call stand: places asked for, counted to absolute positions.

Does not know: encodings, modes.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentcho.errors import BadOffsets
from agentcho.flow.views import After, Place, ReadSet


def places_of(reads: ReadSet) -> tuple[Place, ...]:
    """The places asked for, one a message and then the new one's."""
    return (*(read.at for read in reads.reads), reads.new_at)


def count(reads: ReadSet, lengths: Sequence[int | None], first: int) -> list[int | None]:
    """Positions of all messages and then of the new one, as far as `lengths` (tokens, None: not known) tell;
    None beyond, which is right after the preceding one. `first` is where the first stands by default.

    `BadOffsets`: one is placed after a message that does not stand before it.
    """
    ends: dict[str, int | None] = {}
    end: int | None = first
    positions = list[int | None]()
    for read, length in zip(reads.reads, lengths, strict=True):
        start = _position(read.at, end, ends)
        positions.append(start)
        end = ends[read.id] = None if start is None or length is None else start + length
    return [*positions, _position(reads.new_at, end, ends)]


def _position(place: Place, end: int | None, ends: dict[str, int | None]) -> int | None:
    match place:
        case None:
            return end
        case int():
            return place
        case "rightmost":
            known = [each for each in ends.values() if each is not None]
            return end if not ends else max(known) if len(known) == len(ends) else None
        case After(id, plus):
            counted = ends.get(id)
            if counted is None:
                raise BadOffsets(f"a message is placed after {id!r}, which stands nowhere before it in the view")
            return counted + plus
