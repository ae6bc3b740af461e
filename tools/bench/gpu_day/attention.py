"""Times torch's own attention on new lengths: with the kernels that the engine uses, and with cuDNN, which torch would
choose on recent GPUs and which builds a plan for every new length.
"""

from __future__ import annotations

from time import perf_counter

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from agentcho.runner.model.device import synchronize
from tools.bench.gpu_day.day import Day

HEADS, DIM = 32, 128
KINDS = {
    "flash": (SDPBackend.FLASH_ATTENTION, False),
    "efficient": (SDPBackend.EFFICIENT_ATTENTION, False),
    "efficient, with a mask": (SDPBackend.EFFICIENT_ATTENTION, True),
    "cuDNN": (SDPBackend.CUDNN_ATTENTION, False),
    "cuDNN, with a mask": (SDPBackend.CUDNN_ATTENTION, True),
}
"""Kernels, and whether they get a boolean mask."""


def attention(day: Day) -> None:
    """For each kernel, the seconds of the first call with a new length and of the second, for every tail over the
    cached tokens; or why it does not run here."""
    device = torch.device(day.asked.device)
    for name, (backend, masked) in KINDS.items():
        try:
            _timed(device, backend, masked, tail=1, keys=day.sizes.cached)
            times = [_timed(device, backend, masked, tail, day.sizes.cached + tail) for tail in day.sizes.tails]
        except RuntimeError as error:  # no usable kernel
            day.keep(name, {"why": str(error).splitlines()[0]})
        else:
            day.keep(name, {"first": [first for first, _ in times], "again": [again for _, again in times]})


def _timed(device: torch.device, backend: SDPBackend, masked: bool, tail: int, keys: int) -> tuple[float, float]:
    """Seconds of the first call with these lengths, and of the second."""
    own, whole = _drawn(device, tail), _drawn(device, keys)
    mask = torch.ones(tail, keys, dtype=torch.bool, device=device).tril(keys - tail) if masked else None
    seconds = list[float]()
    with sdpa_kernel(backend):
        for _ in range(2):
            synchronize(device)
            began = perf_counter()
            scaled_dot_product_attention(own, whole, whole, attn_mask=mask)
            synchronize(device)
            seconds.append(perf_counter() - began)
    return seconds[0], seconds[1]


def _drawn(device: torch.device, tokens: int) -> Tensor:
    """Random queries or keys for this many tokens."""
    return torch.randn(1, HEADS, tokens, DIM, device=device, dtype=torch.bfloat16)
