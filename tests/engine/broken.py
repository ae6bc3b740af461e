"""Simulated failures inside a step: a dead device, and forwards that fail for certain tokens or sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from agentcho import Engine
from agentcho.engine.forward_plan import FaultAttribution


def dead(patch: pytest.MonkeyPatch) -> None:
    """Make every probe of a device fail from now on."""

    def gone(blame: FaultAttribution) -> None:
        raise RuntimeError("the device is gone")

    patch.setattr(FaultAttribution, "probe", gone)


@contextmanager
def failing(engine: Engine, when: Callable[[list[int]], bool], error: Exception) -> Iterator[list[int]]:
    """Raise `error` deep inside every forward whose packed ids satisfy `when`; yields those forwards' token counts."""
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
