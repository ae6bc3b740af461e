"""Keeps caches of the library by hand, to start from again: whole, cropped, or side by side with padding. Independent
of models and of what is generated.
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
    """The keys and values per layer, `[heads, tokens, dim]`, of a cache that begins with these ids; the first `length`
    are usable."""

    ids: Ids
    layers: tuple[tuple[Tensor, Tensor], ...]
    length: int


NOTHING = Prefix((), (), 0)


class Prefixes:
    """Kept prefixes by name; a new one replaces the one of the same name."""

    def __init__(self) -> None:
        self._kept: dict[str, Prefix] = {}

    def longest(self, prompt: Ids) -> Prefix:
        """The kept prefix that shares the most tokens with the beginning of `prompt`. The last token of the prompt is
        always left to feed."""
        best = NOTHING
        for kept in self._kept.values():
            length = min(common((kept.ids, prompt)), len(prompt) - 1)
            best = kept._replace(length=length) if length > best.length else best
        return best

    def keep(self, name: str, ids: Ids, cache: Any, row: int, columns: Tensor | None) -> None:
        """Keep one row of a cache: these columns (None: the first ones, which needs no copy)."""
        layers = tuple(
            (_taken(layer.keys[row], columns, len(ids)), _taken(layer.values[row], columns, len(ids)))
            for layer in cache.layers
        )
        self._kept[name] = Prefix(ids, layers, len(ids))


def taking(network: Any, cache: DynamicCache) -> dict[str, DynamicCache]:
    """The cache under the keyword that the network takes: ``cache`` since transformers 5.24, which deprecates the older
    name."""
    named = "cache" if "cache" in signature(network.forward).parameters else "past_key_values"
    return {named: cache}


def common(sequences: Sequence[Ids]) -> int:
    """The length of the longest common prefix of all sequences."""
    return sum(1 for _ in takewhile(lambda tokens: len(set(tokens)) == 1, zip(*sequences, strict=False)))


def side_by_side(prefixes: Sequence[Prefix]) -> DynamicCache:
    """A cache with one row per prefix, left-padded to the longest one; empty if all are empty."""
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
    """Keys or values `[rows, heads, most, dim]`; a view if there is only one row."""
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
