"""Forwards over layers on several devices: a `Batch` or `Whole` for each, with its own copy of what tells where keys
lie and what may be seen. A layer is answered by that of its device.

Does not know: how layers come to their devices.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from agentcho.engine.attention import Locality, Scoring
from agentcho.engine.batch import Batch
from agentcho.engine.encoding import Segment
from agentcho.engine.rope import Rotation
from agentcho.engine.store import Store
from agentcho.engine.whole import Made, Whole


def batch_of(segments: Sequence[Segment], store: Store, rotations: Sequence[Rotation], device: torch.device) -> Batch:
    """The batch of a forward whose ids and logits are on `device`, and its layers where the store has them."""
    kind = Batch if set(store.devices) == {device} else _Batches
    return kind(segments, store, rotations, device)


def whole_of(
    segments: Sequence[Segment], rotations: Sequence[Rotation], devices: Sequence[torch.device], device: torch.device,
    made: Made | None = None,
) -> Whole:  # fmt: skip
    """The same with gradients; `devices` are those of the layers."""
    if set(devices) == {device}:
        return Whole(segments, rotations, device, made)
    return _Wholes(segments, rotations, devices, device, made)


class _Batches(Batch):
    """Itself where ids and logits are; the others lay out the same segments, and so agree with it on all places."""

    def __init__(
        self, segments: Sequence[Segment], store: Store, rotations: Sequence[Rotation], device: torch.device
    ) -> None:
        super().__init__(segments, store, rotations, device)
        self._devices = store.devices
        others = set(store.devices) - {device}
        self._others = {other: Batch(segments, store, rotations, other) for other in others}

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `Batch.attend`."""
        other = self._others.get(self._devices[layer])
        answer = super().attend if other is None else other.attend
        return answer(layer, queries, keys, values, locality, scoring)


class _Wholes(Whole):
    """The same for `Whole`."""

    def __init__(
        self, segments: Sequence[Segment], rotations: Sequence[Rotation], devices: Sequence[torch.device],
        device: torch.device, made: Made | None = None,
    ) -> None:  # fmt: skip
        super().__init__(segments, rotations, device, made)
        self._devices = devices
        self._others = {other: Whole(segments, rotations, other, made) for other in set(devices) - {device}}

    def attend(
        self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, locality: Locality, scoring: Scoring
    ) -> Tensor:
        """See `Batch.attend`."""
        other = self._others.get(self._devices[layer])
        answer = super().attend if other is None else other.attend
        return answer(layer, queries, keys, values, locality, scoring)
