"""Selects the anchors from which a message takes offsets of keys and values.

The runner measures distances, the method weighs them, and `runner.reuse` adds the offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from agentcho.engine.call_layout import ContextPiece, Ids, WeightedAnchor
from agentcho.reuse.method import ByAnchors

Apart = Callable[[Ids, Sequence[Ids]], Sequence[float]]
"""Distances between the embeddings of tokens and those of equally many first tokens of each of some others."""


class Pair(NamedTuple):
    """An anchor as it is stored: in the prompt of its caller, and as it is reused."""

    real: ContextPiece
    base: ContextPiece

    def fits(self, length: int) -> bool:
        """Whether a message of `length` tokens can be compared with it. An encoding that was itself repaired does not
        fit, because it would pass its errors on."""
        recipe = self.real.entry.recipe
        return self.real.entry.length >= length and recipe is not None and recipe.base is None


def matched(tokens: Ids, pairs: Sequence[Pair], choose: ByAnchors, apart: Apart) -> tuple[WeightedAnchor, ...]:
    """The weighted anchors of a message with these tokens, the heaviest first. Empty if they do not suffice."""
    fitting = [pair for pair in pairs if pair.fits(len(tokens))]
    if not fitting:
        return ()
    others = [pair.real.entry.recipe.tokens for pair in fitting if pair.real.entry.recipe is not None]
    shares = choose.weights(apart(tokens, others))
    found = (WeightedAnchor(*pair, share) for pair, share in zip(fitting, shares, strict=False))
    return tuple(sorted(found, key=lambda each: -each.weight))
