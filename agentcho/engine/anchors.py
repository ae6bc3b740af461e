"""Which anchors a message takes offsets of keys and values from, and how much of each (KVCOMM, arXiv 2510.12872: anchor
prediction and offset approximation).

Does not know: embeddings (a runner measures distances), how offsets are added, whose anchors these are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log
from typing import NamedTuple

from agentcho.engine.layout import Ids, Piece, Weighted

Apart = Callable[[Ids, Sequence[Ids]], Sequence[float]]
"""How far the embeddings of tokens are from those of as many first tokens of each of some others."""
FEWEST = 2
"""Of one anchor alone the entropy is 0 however far it is, so it says nothing."""


class Pair(NamedTuple):
    """An anchor as it is stored: in the prompt of its caller, and as it is reused."""

    real: Piece
    base: Piece

    def fits(self, length: int) -> bool:
        """Whether a message of so many tokens can be compared with it. What was put together of other anchors is none
        itself: it would hand their errors on."""
        recipe = self.real.entry.recipe
        return self.real.entry.length >= length and recipe is not None and recipe.base is None


def matched(tokens: Ids, pairs: Sequence[Pair], threshold: float, apart: Apart) -> tuple[Weighted, ...]:
    """The anchors of a message of these tokens, the one that weighs most first; none where they do not suffice."""
    fitting = [pair for pair in pairs if pair.fits(len(tokens))]
    if len(fitting) < FEWEST:
        return ()
    others = [pair.real.entry.recipe.tokens for pair in fitting if pair.real.entry.recipe is not None]
    shares = weights(apart(tokens, others), threshold)
    found = (Weighted(*pair, share) for pair, share in zip(fitting, shares, strict=False))
    return tuple(sorted(found, key=lambda each: -each.weight))


def weights(distances: Sequence[float], threshold: float) -> tuple[float, ...]:
    """The softmax of minus these distances; empty where its entropy is more than `threshold` times the highest that so
    many weights can have."""
    least = min(distances)
    parts = [exp(least - each) for each in distances]
    shares = [part / sum(parts) for part in parts]
    highest = log(len(shares))
    entropy = min(highest, -sum(share * log(share) for share in shares if share))
    return tuple(shares) if entropy <= threshold * highest else ()
