"""Chooses which tokens of a message under repair are encoded anew in one layer, as in CacheBlend (arXiv 2405.16444):
those whose values differ most from the kept values.

In a forward all tokens of a segment go through all layers. Tokens that a layer filters out go on, but there, and in
every later layer, others read their kept keys and values: so the numbers are those of the method, but no work is saved.
Independent of calls and of storage.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from agentcho.engine.call_layout import Segment
from agentcho.runner.reuse.deviation import COMPARED, most_deviating


def recomputed_tokens(segment: Segment, layer: int, layers: int, fresh: Tensor, kept: Tensor) -> Sequence[int]:
    """The indices in `segment.places` of the tokens that are encoded anew at `layer` of `layers`, by the `fresh` values
    `[heads, places, dim]` and the `kept` ones `[heads, tokens of the message, dim]` of that layer. Must be called for
    the layers in order."""
    assert segment.narrowing is not None
    if layer <= COMPARED:
        segment.left = range(len(segment.places))
    else:
        left = segment.left
        there = [segment.places[index] for index in left]
        count = segment.narrowing.anew(kept.shape[1], layer, layers)
        segment.left = [left[index] for index in most_deviating(fresh[:, left], kept[:, there], count)]
    return segment.left
