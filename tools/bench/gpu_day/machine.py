"""Reports versions, the GPU, its clocks, and what is missing. Must not import the engine at the top level."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from tools.bench.gpu_day.day import Day, Impossible
from tools.bench.gpu_day.lacks import missing, to_carry
from tools.bench.gpu_day.parts import PARTS

PACKAGES = ("torch", "triton", "transformers", "tokenizers", "llguidance", "pydantic", "pytest", "flash-attn")
ASKED = "name,driver_version,memory.total,memory.used,clocks.sm,clocks.max.sm,clocks.mem,clocks.max.mem,power.limit,\
temperature.gpu,utilization.gpu,compute_mode,ecc.mode.current,pstate"
"""Fields of `nvidia-smi --query-gpu`."""


def machine(day: Day) -> None:
    """Report on this machine. `Impossible`, after everything else was reported: the device cannot be used."""
    day.keep("python", platform.python_version())
    day.keep("packages", {name: found for name in PACKAGES if (found := _version(name)) is not None})
    lacking = missing(name for part in PARTS for name in part.needs)
    day.keep("missing", {"modules": lacking, "carry": to_carry(lacking)} if lacking else {})
    day.keep("torch", {"cuda": torch.version.cuda, "cudnn": _cudnn(), "archs": torch.cuda.get_arch_list()})
    day.keep("nvidia-smi", nvidia_smi())
    if torch.device(day.asked.device).type != "cuda":
        return
    if (why := why_not(day.asked.device)) is not None:
        raise Impossible(why)
    gpu: Any = torch.cuda.get_device_properties(day.asked.device)
    named = ("name", "major", "minor", "total_memory", "multi_processor_count", "L2_cache_size", "clock_rate")
    day.keep("gpu", {name: getattr(gpu, name) for name in named if hasattr(gpu, name)})
    day.keep("free", dict(zip(("free", "total"), torch.cuda.mem_get_info(day.asked.device), strict=True)))


def why_not(device: str) -> str | None:
    """Why a GPU cannot be used, in one line. None: it can."""
    try:
        from agentcho.errors import ModelError
        from agentcho.runner.model.device import check_gpu, device_of
    except ImportError:
        return None if torch.cuda.is_available() else f"torch finds no device {device!r} here"
    try:
        check_gpu(device_of(device))
    except ModelError as error:
        return str(error)
    return None


def nvidia_smi() -> dict[str, str]:
    """The driver's report on the first GPU. "error": why there is none."""
    asking = ["nvidia-smi", f"--query-gpu={ASKED}", "--format=csv,noheader"]
    try:
        told = subprocess.run(asking, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    if told.returncode:
        return {"error": (told.stdout + told.stderr).strip().splitlines()[0]}
    return dict(zip(ASKED.split(","), map(str.strip, told.stdout.splitlines()[0].split(",")), strict=False))


def _cudnn() -> int | None:
    cudnn: Any = torch.backends.cudnn
    return cudnn.version() if cudnn.is_available() else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
