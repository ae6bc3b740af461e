"""A slow oracle for KVCOMM repairs (anchors), following the definitions of arXiv 2510.12872: distances, weights,
the entropy bound and offsets, computed number by number in Python floats.

Keys and values of a message, alone and inside a prompt, come from the stock model, and so do keys at another position:
see `Oracle`. Must not import agentcho.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt

import torch
from torch import Tensor
from transformers import PreTrainedModel

from .oracle import Message, Oracle

Layers = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, `[1, heads, tokens, dim]`."""


def distance(model: PreTrainedModel, tokens: Sequence[int], other: Sequence[int]) -> float:
    """The Euclidean distance between a message's token embeddings and an anchor's, over the shorter of the two."""
    table = model.get_input_embeddings().weight.detach()  # type: ignore[operator]
    total = 0.0
    for one, its in zip(tokens, other, strict=False):
        for a, b in zip(table[one].tolist(), table[its].tolist(), strict=True):
            total += (a - b) ** 2
    return sqrt(total)


def weights(distances: Sequence[float]) -> list[float]:
    """The softmax of the negated distances: the nearest anchor weighs most."""
    parts = [exp(-each) for each in distances]
    return [part / sum(parts) for part in parts]


def spread(shares: Sequence[float]) -> float:
    """The entropy of the weights as a share of its maximum."""
    return -sum(share * log(share) for share in shares) / log(len(shares))


def put_together(
    oracle: Oracle, message: Message, base: int, anchors: Sequence[tuple[int, int]], shares: Sequence[float]
) -> int:
    """Add a message with the keys and values of `base`, moved to its start and corrected by the weighted offsets of
    anchors (real, base), as an encoding that later messages can attend to; returns its index."""
    index = oracle.add(message)
    at, count = message.start, len(message.tokens)
    layers: Layers = []
    for layer, (keys, values) in enumerate(oracle._at(base, at)):
        pairs = [(oracle._at(real, at)[layer], oracle._at(alone, at)[layer]) for real, alone in anchors if layer]
        parts = []
        for which, kept in enumerate((keys, values)):
            offsets = [(real[which][:, :, :count], alone[which][:, :, :count]) for real, alone in pairs]
            parts.append(_added(kept, offsets, shares))
        layers.append((parts[0], parts[1]))
    oracle._moved[index, at] = layers
    return index


def _added(kept: Tensor, offsets: Sequence[tuple[Tensor, Tensor]], shares: Sequence[float]) -> Tensor:
    found = kept.double().flatten().tolist()
    for (real, alone), share in zip(offsets, shares, strict=False):
        pairs = zip(real.double().flatten().tolist(), alone.double().flatten().tolist(), strict=True)
        found = [number + share * (a - b) for number, (a, b) in zip(found, pairs, strict=True)]
    return torch.tensor(found, dtype=torch.float64).view(kept.shape).to(kept.dtype)
