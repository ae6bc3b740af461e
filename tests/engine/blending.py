"""CacheBlend with its gradual filter by the slow oracle (arXiv 2405.16444): every token is a message of its own.

Which tokens are anew is worked out layer by layer, by encoding the message once for each.
Imports nothing from agentcho.

The share of tokens that are anew falls evenly from the second layer to the last, around the share that was asked for,
as far above it at first as below it at last, and never above all.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from torch import Tensor

from .oracle import Message, Oracle

Places = list[tuple[int, int]]


class MixedOracle(Oracle):
    """Also knows encodings that have the keys and values of one in some layers, and of another in the others."""

    def mix(self, fresh: int, kept: int, anew: Sequence[int]) -> int:
        """The index of one that has those of `fresh` in the layers `anew`, and those of `kept` elsewhere."""
        self._mixes = {**getattr(self, "_mixes", {}), len(self._encodings): (fresh, kept, frozenset(anew))}
        self._encodings.append(self._encodings[fresh])
        return len(self._encodings) - 1

    def _at(self, index: int, start: int) -> list[tuple[Tensor, Tensor]]:
        mixes: dict[int, tuple[int, int, frozenset[int]]] = getattr(self, "_mixes", {})
        if index not in mixes:
            return super()._at(index, start)
        fresh, kept, anew = mixes[index]
        new, old = self._at(fresh, start), self._at(kept, start)
        return [new[layer] if layer in anew else old[layer] for layer in range(len(old))]

    def values(self, index: int, layer: int) -> Tensor:
        """Its values in one layer, wherever it stands."""
        return self._at(index, 0)[layer][1].double()


def blended(
    oracle: MixedOracle, tokens: Sequence[int], kept: Sequence[int], context: Places, start: int, share: float
) -> list[int]:
    """The tokens of a message from position `start` on over `context`, `kept` being what they are elsewhere."""
    layers, most = len(oracle._layers), len(tokens)
    spread = min(share / 2, 1 - share)
    anew: list[set[int]] = [set(range(most)), set(range(most))]
    for layer in range(1, layers):
        found = _encoded(oracle, tokens, kept, context, start, anew)
        changed = {
            n: float((oracle.values(found[n], layer) - oracle.values(kept[n], layer)).square().sum()) for n in anew[-1]
        }
        fallen = (layer - 1) / (layers - 2)
        count = max(1, ceil((share + spread - 2 * spread * fallen) * most))
        chosen = set(sorted(changed, key=lambda n: (-changed[n], n))[:count])
        anew[layer:] = [chosen, chosen]
        if layer == 1:
            anew[0] = chosen  # the others have the same keys and values there
    return _encoded(oracle, tokens, kept, context, start, anew)


def _encoded(
    oracle: MixedOracle,
    tokens: Sequence[int],
    kept: Sequence[int],
    context: Places,
    start: int,
    anew: Sequence[set[int]],
) -> list[int]:
    """Every token over the context and those before it. `anew`: of each layer; of those beyond, as in the last."""
    found: list[int] = []
    for n, token in enumerate(tokens):
        before = [(index, start + m) for m, index in enumerate(found)]
        fresh = oracle.add(Message((token,), start + n, (*context, *before)))
        layers = [layer for layer in range(len(oracle._layers)) if n in anew[min(layer, len(anew) - 1)]]
        found.append(oracle.mix(fresh, kept[n], layers))
    return found
