"""The slow oracle of repairs by anchors, from the paper's definitions (KVCOMM, arXiv 2510.12872): distances, weights,
the bound on their entropy, and offsets, number by number in Python's floats.

Keys and values of a message, alone and in a prompt, are the stock model's own, and so are keys at another position: see
`Oracle`. Imports nothing from agentcho.
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
    """How far the embeddings of a message are from those of an anchor, as far as the message goes."""
    table = model.get_input_embeddings().weight.detach()  # type: ignore[operator]
    total = 0.0
    for one, its in zip(tokens, other, strict=False):
        for a, b in zip(table[one].tolist(), table[its].tolist(), strict=True):
            total += (a - b) ** 2
    return sqrt(total)


def weights(distances: Sequence[float]) -> list[float]:
    """Their softmax, the nearest weighing most."""
    parts = [exp(-each) for each in distances]
    return [part / sum(parts) for part in parts]


def spread(shares: Sequence[float]) -> float:
    """The entropy of weights, as a share of the most that it can be."""
    return -sum(share * log(share) for share in shares) / log(len(shares))


def put_together(
    oracle: Oracle, message: Message, base: int, anchors: Sequence[tuple[int, int]], shares: Sequence[float]
) -> int:
    """A message that stands at its place with the keys and values of `base`, and with the offsets of anchors (real,
    base) added, as an encoding of the oracle that can be attended to there; returns its index."""
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
