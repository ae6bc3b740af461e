"""Recomputes the tokens that deviate most: the selection of CacheBlend (arXiv 2405.16444) without its filter."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Self

from agentcho.reuse.method import ByDeviation, Source
from agentcho.reuse.parameters import share, share_in


@dataclass(frozen=True)
class TopK(ByDeviation):
    """For `Repair`: the tokens whose values deviate most, at an early layer, from those of the message computed in
    full.

    Args:
        share: Share of the tokens, above 0 and at most 1. At least one token is recomputed.
    """

    share: float

    name = "top-k"
    form = "top-k:SHARE"
    limits = "SHARE is above 0, at most 1"
    usual = "top-k:0.15"
    examples = ("top-k:0.15",)
    about = (
        "the 15% whose values deviate most, at the second layer, from those of the message encoded anew; at least one"
    )
    source = Source("CacheBlend's choice, as its authors' program has it", "2405.16444")

    @classmethod
    def parsed(cls, value: str | None) -> Self | None:
        """See `Method.parsed`."""
        found = share_in(value)
        return None if found is None else cls(found)

    @classmethod
    def checked(cls, given: Self) -> Self:
        """See `Method.checked`."""
        return cls(share(given.share, "the share of TopK"))

    def count(self, length: int) -> int:
        """See `ByDeviation.count`."""
        return ceil(self.share * length)

    @property
    def tag(self) -> str:
        """See `Selection.tag`."""
        return f"Most(share={self.share!r})"
