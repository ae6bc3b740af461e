"""CacheBlend with its gradual filter (arXiv 2405.16444) on the slow oracle: every token is a message of its own.

The recomputed tokens are found layer by layer, encoding the whole message once for each layer.
Must not import agentcho.

The share of recomputed tokens falls linearly from the second layer to the last and averages the requested share. It
starts as far above that share as it ends below it, and never exceeds 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from torch import Tensor

from .oracle import Message, Oracle

Places = list[tuple[int, int]]


class MixedOracle(Oracle):
    """An oracle with mixed encodings too: keys and values of one encoding in some layers, of another elsewhere."""

    def mix(self, fresh: int, kept: int, anew: Sequence[int]) -> int:
        """Add an encoding with the layers `anew` of `fresh` and all other layers of `kept`; returns its index."""
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
        """An encoding's values in one layer, which are the same at every position."""
        return self._at(index, 0)[layer][1].double()


def blended(
    oracle: MixedOracle, tokens: Sequence[int], kept: Sequence[int], context: Places, start: int, share: float
) -> list[int]:
    """Blend a message from position `start` on over `context`; `kept` holds its tokens as encoded elsewhere."""
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
    """Encode every token over the context and the tokens before it. `anew` lists the recomputed tokens of each layer;
    layers beyond the list use its last entry."""
    found: list[int] = []
    for n, token in enumerate(tokens):
        before = [(index, start + m) for m, index in enumerate(found)]
        fresh = oracle.add(Message((token,), start + n, (*context, *before)))
        layers = [layer for layer in range(len(oracle._layers)) if n in anew[min(layer, len(anew) - 1)]]
        found.append(oracle.mix(fresh, kept[n], layers))
    return found
