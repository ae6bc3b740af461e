"""What this machine's processor can do, asked of torch and never timed. Does not know: models."""

from __future__ import annotations

import platform
from typing import Any

import torch


def capability() -> str:
    """The widest instructions that torch uses here, as it calls them; less than the processor has where somebody bounds
    it (`ATEN_CPU_CAPABILITY`)."""
    return str(torch.backends.cpu.get_cpu_capability())


def reorders_bfloat16() -> bool:
    """Whether oneDNN says that it reads bfloat16 weights in an order of its own: on x86 it needs AVX-512. Some builds
    of torch, as on macOS, are without oneDNN."""
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return there and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def has_bfloat16() -> bool:
    """Whether products of bfloat16 are done in hardware, with kernels that use it: AVX-512 with its BF16 instructions,
    AMX, or ARM's own."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return reorders_bfloat16()
    wide = capability().startswith(("AVX512", "AMX"))
    return wide and reorders_bfloat16() and (_says("_is_avx512_bf16_supported") or _says("_is_amx_tile_supported"))


def _says(probe: str) -> bool:
    """What torch answers; where it has no such probe, no."""
    ask: Any = getattr(torch.cpu, probe, None)
    return ask is not None and bool(ask())
