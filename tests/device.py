"""The device on which tests of the engine run, as `AGENTCHO_TEST_DEVICE` names it: the processor by default, or "cuda"
on a machine with a GPU.

Every test that loads a model or makes tensors for one takes `DEVICE` or `PLACE` from here. On a GPU Triton's kernel is
compiled and runs there; elsewhere Triton's interpreter runs it. Does not know: what is tested.
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
"""Its name, as users give it to `Engine.load`."""
on_processor = pytest.mark.skipif(DEVICE != PROCESSOR, reason="of what the engine does on a processor alone")
INTERPRETER, VISIBLE = "TRITON_INTERPRET", "CUDA_VISIBLE_DEVICES"


def __getattr__(name: str) -> Any:
    """`PLACE`: the device as tensors on it name it. Torch is imported for those alone who ask."""
    if name != "PLACE":
        raise AttributeError(name)
    import torch

    place = torch.device(DEVICE)
    return torch.device("cuda", 0) if place == torch.device("cuda") else place


def settle(device: str = DEVICE, environment: MutableMapping[str, str] = os.environ) -> None:
    """Say to Triton, before it is imported, whether its interpreter runs the kernel; and hide GPUs from tests of a
    processor, so that a model that is loaded without a device runs there too."""
    on_processor = device == PROCESSOR
    environment.setdefault(INTERPRETER, "1" if on_processor else "0")
    if on_processor and environment[INTERPRETER] == "1":
        environment[VISIBLE] = ""
