"""CacheBlend (arXiv 2405.16444): recomputes the tokens that deviate most, fewer from layer to layer.

The comparison of values and the filter of each layer are in `runner.reuse.cacheblend`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Self

from agentcho.reuse.method import ByDeviation, Source
from agentcho.reuse.parameters import share, share_in


@dataclass(frozen=True)
class CacheBlend(ByDeviation):
    """For `Repair`: `TopK`, filtered layer by layer as in CacheBlend.

    Of the tokens that are recomputed at one layer, those whose values deviate most are recomputed at the next, fewer
    each time. From the second layer to the last their share falls linearly, from above `share` to as far below it, so
    that `share` is the mean. The first layer's keys and values depend on no context.

    Args:
        share: Mean share of tokens that are recomputed, above 0 and at most 1.
    """

    share: float

    name = "cacheblend"
    form = "cacheblend:SHARE"
    limits = "SHARE is above 0, at most 1"
    usual = attacked = "cacheblend:0.15"
    examples = ("cacheblend:0.15",)
    about = "as `top-k`, and filtered layer by layer: first 22.5%, at last 7.5%, 15% in the mean"
    source = Source("CacheBlend whole", "2405.16444")
    narrows = True

    @classmethod
    def parsed(cls, value: str | None) -> Self | None:
        """See `Method.parsed`."""
        found = share_in(value)
        return None if found is None else cls(found)

    @classmethod
    def checked(cls, given: Self) -> Self:
        """See `Method.checked`."""
        return cls(share(given.share, "the share of CacheBlend"))

    @property
    def first(self) -> float:
        """The share of tokens that are recomputed at the second layer."""
        return self.share + self._spread

    @property
    def _spread(self) -> float:
        return min(self.share / 2, 1 - self.share)

    def count(self, length: int) -> int:
        """See `ByDeviation.count`."""
        return ceil(self.first * length)

    def anew(self, length: int, layer: int, layers: int) -> int:
        """See `ByDeviation.anew`."""
        fallen = max(0, layer - 1) / (layers - 2) if layers > 2 else 0
        return max(1, min(length, ceil((self.first - 2 * self._spread * fallen) * length)))

    @property
    def tag(self) -> str:
        """See `Selection.tag`."""
        return f"Blend(share={self.share!r})"
