"""Resolves device and dtype names, checks for free memory, and reports what the processor supports, according to torch
(never by timing). Independent of models."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from agentcho.errors import ModelError

LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux says how much memory a container may use: control groups of both versions."""
SMALL = 64 << 20
"""The size of the weights in float32, in bytes, up to which a CPU stays with float32."""
SPARE = 1 << 30
"""The least number of bytes that forwards take in addition to the weights."""
KINDS = ("cpu", "cuda", "meta")
"""The kinds of devices on which models run; on "meta" they have shapes and no data."""
FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""The attention implementations of torch used on CUDA: kernels that take any length without preparation, and explicit
products where neither can be used."""
DeviceMap = str | Mapping[str, str | int | torch.device]
"""Which modules go to which device: "auto", "balanced", "sequential", or devices by names of modules, as transformers
takes it."""


class DevicePlacement(NamedTuple):
    """Where a model runs, and in which number formats. With a `map`, `device` must be "auto". `bits`: the format of the
    weights of linear layers, or None for `dtype`. `kv`: the format of keys and values, or None for the model's
    dtype."""

    device: str = "auto"
    dtype: str = "auto"
    map: DeviceMap | None = None
    bits: str | None = None
    kv: str | None = None

    def where(self) -> torch.device:
        """The device; with a map, the main kind of device in it. Raises `ModelError` if it is not on this machine, or
        if both are given."""
        if self.map is not None and self.device != "auto":
            raise ModelError(f"device {self.device!r} cannot be combined with a device map; give one of them")
        return device_of(self.device)


def device_of(name: str) -> torch.device:
    """The device of this name; "auto" is CUDA if there is one. Raises `ModelError` if it is not on this machine, or of
    an untested kind, such as Apple's MPS."""
    cuda = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if cuda else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelError(f"unknown device {name!r}; give auto, cpu, cuda or cuda:N") from error
    if device.type not in KINDS:
        what = f"device {name!r} is of a kind that agentcho has never been run on"
        raise ModelError(f"{what}; give auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and not (cuda and (device.index or 0) < torch.cuda.device_count()):
        raise ModelError(f"no device {name!r} on this machine: {_why_no_gpu(cuda)}")
    return device


def _why_no_gpu(cuda: bool) -> str:
    """Why there is no such GPU, and what to do."""
    if cuda:
        count = torch.cuda.device_count()
        return (
            f"it has {count} GPU{'s' if count > 1 else ''}; give cuda:0{f' to cuda:{count - 1}' if count > 1 else ''}"
        )
    if torch.version.cuda is None:
        return "this torch is built without CUDA; install one that is built for it, or give auto or cpu"
    try:
        init: Any = torch.cuda.init
        init()  # raises an error that describes the driver's problem
    except Exception as error:
        return f"{_first_sentence(error)}; see what `nvidia-smi` says, or give auto or cpu"
    return "its driver shows none (CUDA_VISIBLE_DEVICES may hide them); give auto or cpu"


def _first_sentence(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].partition(". ")[0].rstrip(".")


def check_gpu(device: torch.device) -> None:
    """Raise `ModelError` for a GPU that fails at a trivial addition, with the cause and the remedy in one line. Devices
    of other kinds pass."""
    if device.type != "cuda":
        return
    try:
        _add_on(device)
    except Exception as error:  # torch has no exception types of its own for most failures
        raise ModelError(f"device '{device}' cannot be used: {_why_unusable(device, error)}") from error


def _add_on(device: torch.device) -> None:
    """Run a trivial kernel and wait for the result."""
    torch.ones(1, device=device).add_(1).item()


def _why_unusable(device: torch.device, error: Exception) -> str:
    """What is wrong with a GPU that fails at a trivial operation, and what to do."""
    said = str(error)
    if "no kernel image" in said or "not compatible with the current" in said:
        return f"this torch has no kernels for it ({_kinds(device)}); install a torch that is built for it, or give cpu"
    if "busy or unavailable" in said:
        return (
            "another process has it for itself alone; wait until that ends, have its compute mode set to default, or "
            "give another GPU, as cuda:1"
        )
    if isinstance(error, torch.OutOfMemoryError) or "out of memory" in said:
        return "its memory is full; end the processes that `nvidia-smi` lists, or give another GPU, as cuda:1"
    return f"its driver fails ({_first_sentence(error)}); see what `nvidia-smi` says, start it anew, or give cpu"


def _kinds(device: torch.device) -> str:
    """The compute capability of a GPU, and those for which this torch is built."""
    try:
        major, minor = torch.cuda.get_device_capability(device)
    except Exception:
        return f"it has {', '.join(torch.cuda.get_arch_list())}"
    return f"it is of sm_{major}{minor}; torch has {', '.join(torch.cuda.get_arch_list())}"


def dtype_of(name: str, device: torch.device, random: bool = False, weights: int = 0) -> Any:
    """The dtype of that name. "auto": on CUDA the checkpoint's own, or bfloat16 if weights are random; on a CPU
    float32, or bfloat16 if `weights`, the size of all weights in float32, exceeds `SMALL` and the processor supports
    bfloat16. Never by timing: one machine always makes the same choice."""
    if name == "auto":
        if device.type == "cuda":
            return torch.bfloat16 if random else "auto"
        return torch.bfloat16 if device.type == "cpu" and weights > SMALL and has_bfloat16() else torch.float32
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name not in known:
        raise ModelError(f"unknown dtype {name!r}; give auto, {', '.join(known)}")
    return known[name]


def warn_emulated(dtype: torch.dtype, device: torch.device) -> None:
    """Warn of a dtype that a CPU or a GPU has no instructions for: torch computes with it anyway, but slowly."""
    if dtype != torch.bfloat16:
        return
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        name = torch.cuda.get_device_name(device)
        warnings.warn(f"{name} has no bfloat16 arithmetic, and emulates it; give dtype float16", stacklevel=2)
    if device.type == "cpu" and not has_bfloat16():
        warnings.warn(
            "bfloat16 is emulated on this processor, which has no instructions for it, and every step is slow; "
            "leave out dtype, or give float32",
            stacklevel=2,
        )


def check_room(name: str, weights: int, device: torch.device) -> None:
    """Raise `ModelError` if there is no memory for `weights` bytes of weights and, on a GPU, for forwards."""
    room, gpu = free_memory(device), device.type == "cuda"
    if weights + (SPARE if gpu else 0) > room:
        needed = f"{name} has {weights / 1e9:.1f} GB of weights"
        beside = f", and needs {SPARE / 1e9:.1f} GB beside them" if gpu else ""
        there = f"{device} has room for {room / 1e9:.1f} GB{_used(device)}"
        several = ", or device map auto, which uses all GPUs" if gpu and torch.cuda.device_count() > 1 else ""
        raise ModelError(
            f"{needed}{beside}; {there}; give a smaller model, a dtype of fewer bytes, or another device{several}"
        )


def _used(device: torch.device) -> str:
    """How much memory a GPU has, if much of it is in use."""
    if device.type != "cuda":
        return ""
    free, whole = torch.cuda.mem_get_info(device)
    return f" of {whole / 1e9:.1f} GB, and the rest is in use" if whole - free > SPARE else ""


def free_memory(device: torch.device) -> int:
    """Free bytes on a CUDA device, including those that torch caches; elsewhere the total memory of the machine, or the
    limit of its container."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(device)[0]
    known = "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {})
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if known else 1 << 62
    return min([whole, *map(_limit, LIMITS)])


def has_room(device: torch.device, size: int, spare: int = SPARE) -> bool:
    """Whether `size` bytes can be allocated at once and for good, leaving `spare` bytes for forwards. Always true on a
    CPU, where memory is allocated as it is written."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return True
    return size + spare <= free_memory(device)


def _limit(path: Path) -> int:
    """The number of bytes that a control group file allows. A file that is missing, or says "max", sets no limit."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 1 << 62


def synchronize(*devices: torch.device) -> None:
    """Wait until these devices have finished all queued work. A CPU computes synchronously."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


class FusedAttention:
    """Restricts torch's attention on CUDA to `FUSED` while a forward runs. cuDNN's attention, which torch would prefer
    on recent GPUs, builds a plan for every new length, which takes longer than a step.

    torch's setting is process-wide. The first of several concurrent forwards sets it, and the last one restores it.
    """

    def __init__(self) -> None:
        self._lock, self._set = Lock(), ExitStack()
        self._forwards = 0

    @contextmanager
    def __call__(self, devices: Sequence[torch.device]) -> Iterator[None]:
        """For a forward on these devices; has no effect on a CPU."""
        if all(device.type != "cuda" for device in devices):
            yield
            return
        with self._lock:
            if not self._forwards:
                self._set.enter_context(sdpa_kernel(FUSED))
            self._forwards += 1
        try:
            yield
        finally:
            with self._lock:
                self._forwards -= 1
                if not self._forwards:
                    self._set.close()


fused_attention = FusedAttention()
"""The instance of this process."""


def gpu_name(device: torch.device) -> dict[str, str]:
    """The name of a GPU, as "gpu"; empty for a CPU."""
    return {"gpu": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}


def check_device_map(name: str, placed: Mapping[str, Any]) -> None:
    """Raise `ModelError` for a device map that keeps weights on another device than the one that uses them."""
    kinds = {str(where).partition(":")[0] for where in placed.values()}
    if "disk" in kinds or ("cpu" in kinds and len(kinds) > 1):
        raise ModelError(f"{name} does not fit into the memory of all GPUs; use more GPUs, or a smaller model")


def cpu_capability() -> str:
    """The widest instructions that torch uses here, by torch's name for them. They can be narrower than the
    processor's, if `ATEN_CPU_CAPABILITY` is set."""
    return str(torch.backends.cpu.get_cpu_capability())


def reorders_bfloat16() -> bool:
    """Whether oneDNN reorders bfloat16 weights: on x86 that needs AVX-512. Some builds of torch, as on macOS, have no
    oneDNN."""
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return there and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def has_bfloat16() -> bool:
    """Whether bfloat16 products are computed in hardware: by AVX-512 with BF16 instructions, by AMX, or by ARM's
    instructions."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return reorders_bfloat16()
    wide = cpu_capability().startswith(("AVX512", "AMX"))
    return wide and reorders_bfloat16() and (_says("_is_avx512_bf16_supported") or _says("_is_amx_tile_supported"))


def _says(probe: str) -> bool:
    """torch's answer to a probe; False if it does not know the probe."""
    ask: Any = getattr(torch.cpu, probe, None)
    return ask is not None and bool(ask())
