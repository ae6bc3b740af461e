"""Which anchors a message takes offsets of keys and values from: those that its method weighs, of those that fit.

Does not know: embeddings (a runner measures distances), how anchors are weighed, how offsets are added, whose anchors
these are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from agentcho.engine.call_layout import ContextPiece, Ids, WeightedAnchor
from agentcho.reuse.method import ByAnchors

Apart = Callable[[Ids, Sequence[Ids]], Sequence[float]]
"""How far the embeddings of tokens are from those of as many first tokens of each of some others."""


class Pair(NamedTuple):
    """An anchor as it is stored: in the prompt of its caller, and as it is reused."""

    real: ContextPiece
    base: ContextPiece

    def fits(self, length: int) -> bool:
        """Whether a message of so many tokens can be compared with it. What was put together of other anchors is none
        itself: it would hand their errors on."""
        recipe = self.real.entry.recipe
        return self.real.entry.length >= length and recipe is not None and recipe.base is None


def matched(tokens: Ids, pairs: Sequence[Pair], choose: ByAnchors, apart: Apart) -> tuple[WeightedAnchor, ...]:
    """The anchors of a message of these tokens, the one that weighs most first; none where they do not suffice."""
    fitting = [pair for pair in pairs if pair.fits(len(tokens))]
    if not fitting:
        return ()
    others = [pair.real.entry.recipe.tokens for pair in fitting if pair.real.entry.recipe is not None]
    shares = choose.weights(apart(tokens, others))
    found = (WeightedAnchor(*pair, share) for pair, share in zip(fitting, shares, strict=False))
    return tuple(sorted(found, key=lambda each: -each.weight))
