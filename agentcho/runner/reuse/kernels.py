"""The registry of reuse-method kernels, by method name. A method that computes something of its own has a module beside
this one and a line here.

Independent of the parameters of methods, of encodings, and of how attention is computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from agentcho.engine.call_layout import KVEntry, ParallelContext, Segment
from agentcho.reuse.ape import Ape
from agentcho.reuse.cacheblend import CacheBlend
from agentcho.reuse.kvcomm import KVComm
from agentcho.reuse.method import ByAnchors, ByDeviation
from agentcho.runner.attention.base import Weigher
from agentcho.runner.kv.kv_pool import PagePool
from agentcho.runner.kv.rope import Rotation
from agentcho.runner.reuse.ape import tempered_keys
from agentcho.runner.reuse.cacheblend import recomputed_tokens
from agentcho.runner.reuse.kvcomm import assemble_entry

Rows = Iterable[tuple[int, ParallelContext]]
"""Rows of a forward by index, with the keys that a method weighs."""
Narrow = Callable[[Segment, int, int, Tensor, Tensor], Sequence[int]]
"""The tokens of a segment that are still encoded anew in a layer: see `recomputed_tokens`."""
Assemble = Callable[[PagePool, Sequence[Rotation], KVEntry], None]
"""Writes the keys and values of an entry from its base and its anchors: see `assemble_entry`."""
Weigh = Callable[[Rows, int, int, torch.device], Weigher]
"""Builds the weigher of some rows of a forward: see `tempered_keys`."""

Kernel = TypeVar("Kernel")

NARROW: dict[str, Narrow] = {CacheBlend.name: recomputed_tokens}
ASSEMBLE: dict[str, Assemble] = {KVComm.name: assemble_entry}
WEIGH: dict[str, Weigh] = {Ape.name: tempered_keys}


class CombinedWeighers:
    """Rows of several methods in one forward; each method changes only the scores of its own rows."""

    def __init__(self, weighers: Sequence[Weigher]) -> None:
        self._weighers = weighers

    def weigh(self, scores: Tensor) -> Tensor:
        """See `Weigher.weigh`."""
        for each in self._weighers:
            scores = each.weigh(scores)
        return scores


def narrowing_kernel(method: ByDeviation) -> Narrow:
    """The kernel by which a method encodes fewer tokens anew from layer to layer."""
    return _kernel(NARROW, method.name)


def assembly_kernel(method: ByAnchors) -> Assemble:
    """The kernel by which a method assembles an entry from its base and its anchors."""
    return _kernel(ASSEMBLE, method.name)


def weigher(
    rows: Iterable[tuple[int, ParallelContext | None]], count: int, width: int, device: torch.device
) -> Weigher:
    """The weigher of `count` rows with `width` keys each; `rows` has a row's index and its parallel context."""
    by_method = defaultdict[str, list[tuple[int, ParallelContext]]](list)
    for row, parallel in rows:
        if parallel is not None:
            by_method[parallel.ape.name].append((row, parallel))
    weighers = [_kernel(WEIGH, name)(each, count, width, device) for name, each in by_method.items()]
    return weighers[0] if len(weighers) == 1 else CombinedWeighers(weighers)


def _kernel(known: Mapping[str, Kernel], name: str) -> Kernel:
    if name not in known:
        raise NotImplementedError(f"{name} has no kernel; add one in {__name__}")
    return known[name]
