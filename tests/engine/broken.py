"""What fails inside a step, pretended: a device, a forward of certain tokens, one of too many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from agentcho import Engine
from agentcho.engine.forward_plan import FaultAttribution


def dead(patch: pytest.MonkeyPatch) -> None:
    """From now on no device does anything, however trivial."""

    def gone(blame: FaultAttribution) -> None:
        raise RuntimeError("the device is gone")

    patch.setattr(FaultAttribution, "probe", gone)


@contextmanager
def failing(engine: Engine, when: Callable[[list[int]], bool], error: Exception) -> Iterator[list[int]]:
    """Forwards in which that holds of the packed ids raise, deep inside; gives how many tokens each that did had."""
    failed = list[int]()
    layer = engine._model.network.get_submodule("model.layers.2")
    ids = list[int]()

    def note(module: Any, args: Any, given: dict[str, torch.Tensor]) -> None:
        ids[:] = given["input_ids"].flatten().tolist()

    def fail(module: Any, args: Any) -> None:
        if when(ids):
            failed.append(len(ids))
            raise error

    hooks = (
        engine._model.network.register_forward_pre_hook(note, with_kwargs=True),
        layer.register_forward_pre_hook(fail),
    )
    try:
        yield failed
    finally:
        for hook in hooks:
            hook.remove()
