"""Where a model runs and in which numbers, by name. Does not know: models."""

from __future__ import annotations

from typing import Any

import torch

from agentcho.errors import BadPlacement


def device_of(name: str) -> torch.device:
    """The device of that name; "auto": CUDA if there is one. `BadPlacement`: it is not here."""
    cuda = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if cuda else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise BadPlacement(f"unknown device {name!r}", "auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and not (cuda and (device.index or 0) < torch.cuda.device_count()):
        raise BadPlacement(f"no device {name!r} on this machine", "auto or cpu")
    return device


def dtype_of(name: str, device: torch.device) -> Any:
    """The dtype of that name; "auto": the checkpoint's own on CUDA, float32 on a CPU."""
    if name == "auto":
        return "auto" if device.type == "cuda" else torch.float32
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name not in known:
        raise BadPlacement(f"unknown dtype {name!r}", f"auto, {', '.join(known)}")
    return known[name]
