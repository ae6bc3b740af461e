"""What names an encoding: the number that its engine gave it. Does not know: encodings, calls."""

from __future__ import annotations


class GivenId(int):
    """An id, with the number of the engine that gave it out. If it is written to a file and read back, it is a plain
    number, and its engine is not known."""

    engine: int = -1


def same_engine(id: object, other: object) -> bool:
    """Whether one engine may have given out both ids. The engine of a plain number is not known, so it may."""
    return not (isinstance(id, GivenId) and isinstance(other, GivenId)) or id.engine == other.engine
