"""The device of the engine tests, named by `AGENTCHO_TEST_DEVICE`: the CPU by default, or "cuda" on a machine with a
GPU.

Every test that loads a model or makes tensors for one takes `DEVICE` or `PLACE` from here. On a GPU, Triton's kernels
are compiled and run there; elsewhere Triton's interpreter runs them.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch

    PLACE: torch.device

VARIABLE, PROCESSOR = "AGENTCHO_TEST_DEVICE", "cpu"
DEVICE = os.environ.get(VARIABLE) or PROCESSOR
"""The device name as users pass it to `Engine.load`."""
on_processor = pytest.mark.skipif(DEVICE != PROCESSOR, reason="of what the engine does on a processor alone")
INTERPRETER, VISIBLE = "TRITON_INTERPRET", "CUDA_VISIBLE_DEVICES"


def __getattr__(name: str) -> Any:
    """`PLACE`: the device as its tensors report it. Imports torch only when asked for."""
    if name != "PLACE":
        raise AttributeError(name)
    import torch

    place = torch.device(DEVICE)
    return torch.device("cuda", 0) if place == torch.device("cuda") else place


def settle(device: str = DEVICE, environment: MutableMapping[str, str] = os.environ) -> None:
    """Set, before Triton is imported, whether its interpreter runs the kernels. Tests on a CPU hide all GPUs, so that a
    model loaded without a device runs on the CPU too."""
    on_processor = device == PROCESSOR
    environment.setdefault(INTERPRETER, "1" if on_processor else "0")
    if on_processor and environment[INTERPRETER] == "1":
        environment[VISIBLE] = ""
