"""The ids of encodings: numbers that an engine gives out."""

from __future__ import annotations


class GivenId(int):
    """An id, with the number of the engine that gave it out. Written to a file and read back, it is a plain number of
    an unknown engine."""

    engine: int = -1


def same_engine(id: object, other: object) -> bool:
    """Whether one engine may have given out both ids. A plain number may be from any engine."""
    return not (isinstance(id, GivenId) and isinstance(other, GivenId)) or id.engine == other.engine
