"""Cones: which messages could have influenced an encoding, computed from receipts alone.

The ledger is told what was *actually attended* and never what was asked for. Does not know: tensors, texts,
policies. A cone is exact for provenance and over-approximates information.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import Literal, NamedTuple

from agentcho.calls.call import EncodingId, Receipt
from agentcho.message import Audience

Recipe = Literal["author", "audience", "baseline", "repaired"]


class Cone(Set[str]):
    """Message ids, kept as bits of one number, for the cones of a long game have nearly all of it each."""

    def __init__(self, roll: Roll, bits: int) -> None:
        self.roll, self.bits = roll, bits

    def __contains__(self, id: object) -> bool:
        place = self.roll.places.get(id)  # type: ignore[call-overload]
        return place is not None and bool(self.bits >> place & 1)

    def __iter__(self) -> Iterator[str]:
        digits = bin(self.bits)[:1:-1]
        return (id for id, digit in zip(self.roll.places, digits, strict=False) if digit == "1")

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __hash__(self) -> int:
        return self._hash()

    def __repr__(self) -> str:
        return repr(set(self))

    @classmethod
    def _from_iterable(cls, ids: Iterable[str]) -> frozenset[str]:  # type: ignore[override]
        return frozenset(ids)


class Roll:
    """The messages that cones of one game are told of, each with a place of its own."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def cone(self, message: str, over: Iterable[Cone]) -> Cone:
        """A message, and all that is in the cones of what it was encoded over."""
        bits = 1 << self.places.setdefault(message, len(self.places))
        for cone in over:
            bits |= cone.bits
        return Cone(self, bits)

    def of(self, ids: Set[str]) -> Cone:
        """A cone of this roll with these messages."""
        if isinstance(ids, Cone) and ids.roll is self:
            return ids
        return Cone(self, sum(1 << self.places.setdefault(id, len(self.places)) for id in ids))


def adds_up(cone: Set[str], message: str, over: Iterable[Set[str]]) -> bool:
    """Whether a cone is a message and all that is in the cones of what it was encoded over."""
    parts = list(over)
    if isinstance(cone, Cone) and all(isinstance(part, Cone) and part.roll is cone.roll for part in parts):
        return cone.bits == cone.roll.cone(message, (part for part in parts if isinstance(part, Cone))).bits
    return cone == {message}.union(*parts)


class EncodingRecord(NamedTuple):
    """One encoding of one message. `cone` holds message ids, its own included.

    `recipe` "author": in the context its author spoke in, E(m); "audience": over those of its parents that all its
    readers may read, X(m), of no caller; "baseline": in `caller`'s own prompt; "repaired": in `caller`'s own prompt
    too, but for the tokens that its base keeps (`receipt.base`), whose cone is in its own.
    """

    id: EncodingId
    message: str
    caller: str | None
    recipe: Recipe
    receipt: Receipt
    cone: Set[str]


def attended(receipt: Receipt) -> tuple[EncodingId, ...]:
    """The encodings whose keys and values went into one: all that it attends to, and its base."""
    over = tuple(entry.id for entry in receipt.context)
    return over if receipt.base is None else (*over, receipt.base)


class Ledger:
    """The encodings of one game and their cones."""

    def __init__(self) -> None:
        self._records: dict[EncodingId, EncodingRecord] = {}
        self._cones: dict[EncodingId, Cone] = {}
        self._roll = Roll()

    def record(
        self, id: EncodingId, message: str, caller: str | None, recipe: Recipe, receipt: Receipt
    ) -> EncodingRecord:
        """Enter an encoding whose context is already entered; returns the record with its cone.

        KeyError: the receipt names an encoding that the ledger has not seen (our own invariant).
        """
        cone = self._roll.cone(message, (self._cones[over] for over in attended(receipt)))
        entered = EncodingRecord(id, message, caller, recipe, receipt, cone)
        self._records[id], self._cones[id] = entered, cone
        return entered

    def __getitem__(self, id: EncodingId) -> EncodingRecord:
        return self._records[id]

    def __iter__(self) -> Iterator[EncodingRecord]:
        return iter(self._records.values())


def readers(cone: Iterable[str], audiences: dict[str, Audience], roster: Iterable[str]) -> frozenset[str]:
    """The agents of `roster` that are in the audience of every message of `cone`."""
    members = [audiences[message] for message in cone]
    return frozenset(agent for agent in roster if all(a.includes(agent) for a in members))
