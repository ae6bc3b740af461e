"""The slow oracle with keys and values rounded number by number, as a store with 8-bit keys and values keeps them.

A stock attention layer hands its new keys and values to the library's cache and attends to what the cache returns: here
the rounded ones. Rounded keys are moved to another position by the linear map that the stock layer applies, found by
least squares from the keys that the layer caches for random states at both positions. Must not import agentcho.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from .oracle import Message, Oracle, _Encoding

PROBES = 96
"""The number of random states from which a map is fitted; must exceed the dimension of keys."""
Layers = list[tuple[Tensor, Tensor]]


def by_hand(vectors: Tensor, levels: int = 127) -> Tensor:
    """Round each vector `[..., dim]` to multiples of its largest magnitude / `levels`, in Python numbers."""
    return torch.tensor([_one(each, levels) for each in vectors.reshape(-1, vectors.shape[-1]).tolist()]).view_as(
        vectors
    )


def _one(vector: Sequence[float], levels: int) -> list[float]:
    largest = max(map(abs, vector))
    return [round(each / largest * levels) / levels * largest if largest else 0.0 for each in vector]


class _Rounding(DynamicCache):
    """A cache that rounds what is added once `begun` is set."""

    begun = False

    def update(self, key_states: Tensor, value_states: Tensor, *where: Any, **more: Any) -> Any:
        if self.begun:
            key_states, value_states = by_hand(key_states), by_hand(value_states)
        return super().update(key_states, value_states, *where, **more)


class RoundedOracle(Oracle):
    """An oracle in which every token is seen rounded: by itself, by its own message and by all later readers."""

    def add(self, message: Message) -> int:
        """Encode one message and return its index."""
        if not hasattr(self, "_kept"):
            self._kept: list[Layers] = []
            self._maps: dict[int, list[Tensor]] = {}
        context, cache = self._context(message), _Rounding()
        for layer in range(len(self._layers)):
            for index, at in context:
                cache.update(*self._at(index, at)[layer], layer)
        cache.begun = True
        positions = [at + i for index, at in context for i in range(len(self._encodings[index].message.tokens))]
        with self._masked(positions, message), self._watched() as inputs:
            logits = self._forward(message, message.start, cache)
        own, layers = len(message.tokens), list[Any](cache.layers)
        self._kept.append([(each.keys[:, :, -own:], each.values[:, :, -own:]) for each in layers])
        self._encodings.append(_Encoding(message, tuple(inputs), logits))
        return len(self._encodings) - 1

    def _at(self, index: int, start: int) -> Layers:
        """The stored keys and values of an encoding, keys moved so that its first token is at ``start``."""
        by = start - self._encodings[index].message.start
        if by and by not in self._maps:
            self._maps[by] = self._found(by)
        pairs = enumerate(self._kept[index])
        return [((keys.double() @ self._maps[by][i]).float() if by else keys, values) for i, (keys, values) in pairs]

    def _found(self, by: int) -> list[Tensor]:
        """For each layer the map `[dim, dim]`, float64, that moves its keys by `by` positions."""
        width, first = self._encodings[0].inputs[0].shape[-1], max(0, -by)
        states = [torch.randn(1, PROBES, width, generator=torch.Generator().manual_seed(7)) for _ in self._layers]
        here, there = (self._cached(states, first + more) for more in (0, by))
        return [torch.linalg.lstsq(one, other).solution for one, other in zip(here, there, strict=True)]

    def _cached(self, states: Sequence[Tensor], start: int) -> list[Tensor]:
        """The keys `[heads * tokens, dim]` of each layer for these states, from position ``start`` on."""
        cache = DynamicCache()
        with self._fed(states):
            self._forward(Message((0,) * PROBES, start), start, cache)
        layers: list[Any] = cache.layers
        return [each.keys[0].flatten(0, 1).double() for each in layers]
