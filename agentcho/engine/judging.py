"""Which tokens of a message to encode anew: those whose values deviate most, at an early layer, from fresh ones.

CacheBlend's choice (arXiv 2405.16444): keys and values of the first layer do not depend on a context, so one layer of
attention over what is reused tells what a fresh encoding has at the second. A forward is run up to there and left.
Does not know: what is done with the chosen tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import torch
from torch import Tensor

from agentcho.engine.attention import Locality, Scoring
from agentcho.engine.batch import Batch
from agentcho.engine.encoding import Segment
from agentcho.engine.sequence import Sequence as Repairing
from agentcho.engine.store import Store

LAYER = 1


class Enough(Exception):
    """The layer that judges has been reached."""


class Judge:
    """Answers the attention of a forward over whole messages up to the layer that judges, and keeps its values."""

    def __init__(self, calls: Sequence[Repairing], make: Callable[[Sequence[Segment]], Batch], store: Store) -> None:
        self._calls, self._store = calls, store
        self._segments = [_whole(call) for call in calls]
        self._layer = min(LAYER, store.layers - 1)
        self._values: Tensor | None = None
        self.batch = make(self._segments)

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `Batch.attend`. Raises `Enough` at the layer that judges."""
        if layer < self._layer:
            return self.batch.attend(layer, queries, keys, values, locality, scoring)
        self._values = values[0]
        raise Enough

    def judge(self, forward: Callable[[Tensor, Tensor, Tensor, Judge], object]) -> int:
        """Run a forward as far as is needed, and give each call its places. The same tensors, the same choice.

        Returns the tokens that this fed: all of each message, through a part of the layers, rounded up.
        """
        with suppress(Enough):
            forward(self.batch.ids, self.batch.positions, self.batch.wanted, self)
        assert self._values is not None
        for call, segment in zip(self._calls, self._segments, strict=True):
            call.choose(self._chosen(call, self._values[:, segment.span()]))
        tokens = sum(len(segment.ids) for segment in self._segments)
        return -(-tokens * (self._layer + 1) // self._store.layers)

    def _chosen(self, call: Repairing, fresh: Tensor) -> tuple[int, ...]:
        assert call.repair is not None
        _, kept = self._store.read(call.repair.base.storage.block, self._layer)
        deviation = (fresh.float() - kept.float()).square().sum(dim=(0, 2))
        order = torch.argsort(deviation, descending=True, stable=True)
        return tuple(sorted(order[: call.repair.count].tolist()))


def _whole(call: Repairing) -> Segment:
    """All tokens of the message over what it is judged over; nothing of it is stored."""
    assert call.words is not None
    assert call.repair is not None
    assert call.repair.judged is not None
    return Segment(call.words.tokens, call.repair.judged.start, call.repair.judged.pieces)
