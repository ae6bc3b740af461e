"""The work that the scheduler's half gives the worker's half in one step, and the report on it. They may be two
processes.
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
    """Save messages of a request that has ended and still has its blocks."""

    request: str
    blocks: Blocks
    made: tuple[Read, ...]


class Measurement(NamedTuple):
    """Measure how keys rotate: all tokens of this request, which has ended, are the same."""

    request: str
    blocks: Blocks
    tokens: int


class Refusal(NamedTuple):
    """End a request that has these blocks with an error."""

    request: str
    blocks: Blocks


@dataclass
class Work:
    """The work of one step, in the order in which it is done."""

    drops: list[str] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


@dataclass
class Report:
    """The results of a step's work.

    Attributes:
        lost: Encodings that could not be saved or read.
        turning: Whether keys rotate as expected, and the reason if not. None: nothing was measured.
    """

    lost: list[str] = field(default_factory=list)
    turning: tuple[bool, str] | None = None

    def __bool__(self) -> bool:
        return bool(self.lost) or self.turning is not None
