"""What the scheduler's half asks of the worker's half in one step, and what it is told. They may be two processes.

Does not know: vLLM, tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

Blocks = tuple[int, ...]


class Read(NamedTuple):
    """The first `length` tokens of the encoding `name`, at position `start` of a request."""

    name: str
    start: int
    length: int


class Load(NamedTuple):
    """Fill the slots of a request that has these blocks."""

    request: str
    blocks: Blocks
    reads: tuple[Read, ...]


class Save(NamedTuple):
    """Keep messages of a request that has ended, and still has its blocks."""

    request: str
    blocks: Blocks
    made: tuple[Read, ...]


class Measurement(NamedTuple):
    """Measure how keys turn: all tokens of this request, which has ended, are the same."""

    request: str
    blocks: Blocks
    tokens: int


class Refusal(NamedTuple):
    """End a request that has these blocks with an error."""

    request: str
    blocks: Blocks


@dataclass
class Work:
    """All that is asked in one step. It is done in this order."""

    drops: list[str] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


@dataclass
class Report:
    """What came of it.

    Attributes:
        lost: Encodings that could not be kept or read.
        turning: Whether keys turn as is known, and the reason where they do not; None: nothing was measured.
    """

    lost: list[str] = field(default_factory=list)
    turning: tuple[bool, str] | None = None

    def __bool__(self) -> bool:
        return bool(self.lost) or self.turning is not None
