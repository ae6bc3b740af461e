"""Cones: which messages could have influenced an encoding, computed from receipts alone.

The ledger is told what was *actually attended* and never what was asked for. Does not know: tensors, texts,
policies. A cone is exact for provenance and over-approximates information.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from agentcho.message import Audience
from agentcho.request import EncodingId, Receipt

Recipe = Literal["author", "audience", "baseline", "repaired"]


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
    cone: frozenset[str]


def attended(receipt: Receipt) -> tuple[EncodingId, ...]:
    """The encodings whose keys and values went into one: all that it attends to, and its base."""
    over = tuple(entry.id for entry in receipt.context)
    return over if receipt.base is None else (*over, receipt.base)


class Ledger:
    """The encodings of one game and their cones."""

    def __init__(self) -> None:
        self._records: dict[EncodingId, EncodingRecord] = {}

    def record(
        self, id: EncodingId, message: str, caller: str | None, recipe: Recipe, receipt: Receipt
    ) -> EncodingRecord:
        """Enter an encoding whose context is already entered; returns the record with its cone.

        KeyError: the receipt names an encoding that the ledger has not seen (our own invariant).
        """
        cone = frozenset({message}).union(*(self._records[over].cone for over in attended(receipt)))
        entered = EncodingRecord(id, message, caller, recipe, receipt, cone)
        self._records[id] = entered
        return entered

    def __getitem__(self, id: EncodingId) -> EncodingRecord:
        return self._records[id]

    def __iter__(self) -> Iterator[EncodingRecord]:
        return iter(self._records.values())


def readers(cone: Iterable[str], audiences: dict[str, Audience], roster: Iterable[str]) -> frozenset[str]:
    """The agents of `roster` that are in the audience of every message of `cone`."""
    members = [audiences[message] for message in cone]
    return frozenset(agent for agent in roster if all(a.includes(agent) for a in members))
