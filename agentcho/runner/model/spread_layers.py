"""Moves the inputs that all layers of a model on several GPUs share besides hidden states (positions, sines and
cosines) to each GPU once per forward.

accelerate's hooks would move them for every layer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


def move_once(network: nn.Module, names: Iterable[str]) -> None:
    """Move the keyword arguments of these modules, tensors and tuples of tensors, to the device of their weights. A
    tensor passed to several modules on one device is moved only for the first of them.

    Args:
        network: A network that accelerate has dispatched.
        names: The modules that it has hooked.
    """
    moves = _Moves()
    for name in filter(None, names):
        module = network.get_submodule(name)
        if any(True for _ in module.parameters()):
            module.register_forward_pre_hook(moves, with_kwargs=True)


class _Moves:
    """A hook of several modules. It keeps the last tensor of each name, and its copy on each device."""

    def __init__(self) -> None:
        self._last: dict[tuple[torch.device, str, int], tuple[Tensor, Tensor]] = {}

    def __call__(self, module: nn.Module, args: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """See `nn.Module.register_forward_pre_hook`."""
        device, found = next(module.parameters()).device, dict[str, Any]()
        for name, value in given.items():
            if isinstance(value, Tensor):
                found[name] = self._moved(value, (device, name, 0))
            elif type(value) is tuple and all(isinstance(each, Tensor) for each in value):
                found[name] = tuple(self._moved(each, (device, name, nth)) for nth, each in enumerate(value))
            else:
                found[name] = value
        return args, found

    def _moved(self, tensor: Tensor, key: tuple[torch.device, str, int]) -> Tensor:
        if tensor.device == key[0]:
            return tensor
        source, there = self._last.get(key, (None, tensor))
        if source is not tensor:
            there = tensor.to(key[0])
            self._last[key] = tensor, there
        return there
