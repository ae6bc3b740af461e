"""Caches of the library, kept by hand to be begun from again: whole, cropped, or side by side with padding.

Does not know: models, what is generated.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache

Ids = tuple[int, ...]


class Prefix(NamedTuple):
    """The keys and values a layer, `[heads, tokens, dim]`, of a cache that begins with these ids; `length` of them are
    of use."""

    ids: Ids
    layers: tuple[tuple[Tensor, Tensor], ...]
    length: int


NOTHING = Prefix((), (), 0)


class Prefixes:
    """Kept prefixes by name; the newest of a name replaces the one before."""

    def __init__(self) -> None:
        self._kept: dict[str, Prefix] = {}

    def longest(self, prompt: Ids) -> Prefix:
        """The kept prefix with the most tokens in common with the beginning of `prompt`, whose last token is always
        left to feed."""
        best = NOTHING
        for kept in self._kept.values():
            length = min(common((kept.ids, prompt)), len(prompt) - 1)
            best = kept._replace(length=length) if length > best.length else best
        return best

    def keep(self, name: str, ids: Ids, cache: Any, row: int, columns: Tensor | None) -> None:
        """Keep one row of a cache: these columns (None: the first ones, which costs no copy)."""
        layers = tuple(
            (_taken(layer.keys[row], columns, len(ids)), _taken(layer.values[row], columns, len(ids)))
            for layer in cache.layers
        )
        self._kept[name] = Prefix(ids, layers, len(ids))


def taking(network: Any, cache: DynamicCache) -> dict[str, DynamicCache]:
    """The cache as the keyword by which the network takes it: ``cache`` since transformers 5.24, which warns of the
    name that it had before."""
    named = "cache" if "cache" in signature(network.forward).parameters else "past_key_values"
    return {named: cache}


def common(sequences: Sequence[Ids]) -> int:
    """The length of the prefix that all sequences have in common."""
    return sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*sequences, strict=False)))


def side_by_side(prefixes: Sequence[Prefix]) -> DynamicCache:
    """A cache of as many rows, padded on the left to the longest prefix; empty where there is none at all."""
    cache, most = DynamicCache(), max(prefix.length for prefix in prefixes)
    if most == 0:
        return cache
    sample = next(prefix for prefix in prefixes if prefix.length)
    for number, (keys, values) in enumerate(sample.layers):
        cache.update(
            _stacked(prefixes=prefixes, layer=number, part=0, sample=keys, most=most),
            _stacked(prefixes=prefixes, layer=number, part=1, sample=values, most=most),
            number,
        )
    return cache


def _stacked(prefixes: Sequence[Prefix], layer: int, part: int, sample: Tensor, most: int) -> Tensor:
    """Keys or values `[rows, heads, most, dim]`; of one whole row a view."""
    if len(prefixes) == 1:
        return prefixes[0].layers[layer][part][None, :, :most]
    rows = sample.new_zeros((len(prefixes), sample.shape[0], most, sample.shape[2]))
    for row, prefix in zip(rows, prefixes, strict=True):
        if prefix.length:
            row[:, most - prefix.length :] = prefix.layers[layer][part][:, : prefix.length]
    return rows


def _taken(states: Tensor, columns: Tensor | None, length: int) -> Tensor:
    return states[:, :length] if columns is None else states[:, columns]


def padded(rows: Sequence[Ids], width: int, filling: int, left: bool) -> tuple[Tensor, Tensor]:
    """Ids and mask `[rows, width]`."""
    ids, mask = torch.full((len(rows), width), filling), torch.zeros((len(rows), width), dtype=torch.long)
    for number, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(0, len(row))
        ids[number, place], mask[number, place] = torch.tensor(row, dtype=torch.long), 1
    return ids, mask
