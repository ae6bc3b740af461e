"""Where a model runs and in which numbers, by name; whether there is room; and what the processor can do, as torch says
it (never by timing). Does not know: models."""

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
"""Bytes of weights in float32 up to which a CPU keeps to float32."""
SPARE = 1 << 30
"""Bytes that forwards take beside the weights, at least."""
KINDS = ("cpu", "cuda", "meta")
"""Where models run; on "meta" they have shapes and no numbers."""
FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""torch's attention on CUDA: the kernels that take any length as it comes, and plain products where neither can be
used."""
DeviceMap = str | Mapping[str, str | int | torch.device]
"""Which modules go to which device: "auto", "balanced", "sequential", or devices by names of modules, as transformers
takes it."""


class DevicePlacement(NamedTuple):
    """Where a model shall run, and in which numbers. With a `map`, `device` must be "auto". `bits`: in which
    the weights of linear layers are; None: in those numbers too. `kv`: in which keys and values are kept; None: in
    those of the model."""

    device: str = "auto"
    dtype: str = "auto"
    map: DeviceMap | None = None
    bits: str | None = None
    kv: str | None = None

    def where(self) -> torch.device:
        """The device; with a map, the kind of most devices in it. `ModelError`: it is not on this machine, or both are
        given."""
        if self.map is not None and self.device != "auto":
            raise ModelError(f"device {self.device!r} cannot be combined with a device map; give one of them")
        return device_of(self.device)


def device_of(name: str) -> torch.device:
    """The device of this name; "auto": CUDA if there is one. `ModelError`: it is not on this machine, or of a kind that
    is untested, such as Apple's MPS."""
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
        init()  # says what is wrong with the driver
    except Exception as error:
        return f"{_first_sentence(error)}; see what `nvidia-smi` says, or give auto or cpu"
    return "its driver shows none (CUDA_VISIBLE_DEVICES may hide them); give auto or cpu"


def _first_sentence(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].partition(". ")[0].rstrip(".")


def check_gpu(device: torch.device) -> None:
    """Refuse a GPU that cannot be used, by having it add two numbers. `ModelError`: in one line what is so, and what to
    do. Devices of other kinds are taken."""
    if device.type != "cuda":
        return
    try:
        _add_on(device)
    except Exception as error:  # torch has no types of its own for most of them
        raise ModelError(f"device '{device}' cannot be used: {_why_unusable(device, error)}") from error


def _add_on(device: torch.device) -> None:
    """A trivial kernel, and a wait for what it gives."""
    torch.ones(1, device=device).add_(1).item()


def _why_unusable(device: torch.device, error: Exception) -> str:
    """What is wrong with a GPU that fails at something trivial, and what to do."""
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
    """Of which kind a GPU is, and for which kinds this torch is built."""
    try:
        major, minor = torch.cuda.get_device_capability(device)
    except Exception:
        return f"it has {', '.join(torch.cuda.get_arch_list())}"
    return f"it is of sm_{major}{minor}; torch has {', '.join(torch.cuda.get_arch_list())}"


def dtype_of(name: str, device: torch.device, random: bool = False, weights: int = 0) -> Any:
    """The dtype of that name. "auto": on CUDA the checkpoint's own, bfloat16 where weights are random; on a CPU
    float32, but bfloat16 where `weights`, the bytes of all in float32, are more than `SMALL` and the processor has it
    in hardware. Never by timing: one machine always takes the same."""
    if name == "auto":
        if device.type == "cuda":
            return torch.bfloat16 if random else "auto"
        return torch.bfloat16 if device.type == "cpu" and weights > SMALL and has_bfloat16() else torch.float32
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name not in known:
        raise ModelError(f"unknown dtype {name!r}; give auto, {', '.join(known)}")
    return known[name]


def warn_emulated(dtype: torch.dtype, device: torch.device) -> None:
    """Warn of numbers that a CPU has no instructions for: torch computes with them all the same, and slowly."""
    if dtype == torch.bfloat16 and device.type == "cpu" and not has_bfloat16():
        warnings.warn(
            "bfloat16 is emulated on this processor, which has no instructions for it, and every step is slow; "
            "leave out dtype, or give float32",
            stacklevel=2,
        )


def check_room(name: str, weights: int, device: torch.device) -> None:
    """Refuse weights of so many bytes that there is no memory for. `ModelError`."""
    room = free_memory(device)
    if weights + SPARE > room:
        needed = f"{name} has {weights / 1e9:.1f} GB of weights, and needs {SPARE / 1e9:.1f} GB beside them"
        there = f"{device} has room for {room / 1e9:.1f} GB{_used(device)}"
        raise ModelError(f"{needed}; {there}; give a smaller shape, or another device")


def _used(device: torch.device) -> str:
    """How much memory a GPU has, where much of it is in use."""
    if device.type != "cuda":
        return ""
    free, whole = torch.cuda.mem_get_info(device)
    return f" of {whole / 1e9:.1f} GB, and the rest is in use" if whole - free > SPARE else ""


def free_memory(device: torch.device) -> int:
    """Free bytes on a CUDA device, including those that torch keeps for later; elsewhere all bytes that the machine
    has, or that its container may use."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(device)[0]
    known = "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {})
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if known else 1 << 62
    return min([whole, *map(_limit, LIMITS)])


def has_room(device: torch.device, size: int, spare: int = SPARE) -> bool:
    """Whether so many bytes can be taken at once and for good, and leave `spare` bytes for forwards. On a CPU they can:
    memory is taken there as it is written."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return True
    return size + spare <= free_memory(device)


def _limit(path: Path) -> int:
    """The number of bytes that a file of a control group allows. A file that is missing, or says "max", allows all."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 1 << 62


def synchronize(*devices: torch.device) -> None:
    """Wait until these devices have done all that was asked of them. A CPU has done it already."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


class FusedAttention:
    """Keeps torch's attention on CUDA to `FUSED` while a forward runs. cuDNN's attention, which torch would prefer on
    recent GPUs, builds a plan for every new length, which takes longer than a step.

    What torch allows is set for the whole process. The first of several forwards at a time sets it, and the last one
    sets it back.
    """

    def __init__(self) -> None:
        self._lock, self._set = Lock(), ExitStack()
        self._forwards = 0

    @contextmanager
    def __call__(self, devices: Sequence[torch.device]) -> Iterator[None]:
        """For a forward on these devices; on a CPU there is nothing to choose."""
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
"""That of this process."""


def gpu_name(device: torch.device) -> dict[str, str]:
    """The name of a GPU, as "gpu"; of a CPU nothing."""
    return {"gpu": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}


def check_device_map(name: str, placed: Mapping[str, Any]) -> None:
    """Refuse a device map that keeps weights on another device than the one that uses them. `ModelError`."""
    kinds = {str(where).partition(":")[0] for where in placed.values()}
    if "disk" in kinds or ("cpu" in kinds and len(kinds) > 1):
        raise ModelError(f"{name} does not fit into the memory of all GPUs; use more GPUs, or a smaller model")


def cpu_capability() -> str:
    """The widest instructions that torch uses here, by torch's name for them. They can be narrower than the
    processor's, if `ATEN_CPU_CAPABILITY` says so."""
    return str(torch.backends.cpu.get_cpu_capability())


def reorders_bfloat16() -> bool:
    """Whether oneDNN reads bfloat16 weights in an order of its own: on x86 that needs AVX-512. Some builds of torch, as
    on macOS, have no oneDNN."""
    there: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return there and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def has_bfloat16() -> bool:
    """Whether products of bfloat16 are computed in hardware: by AVX-512 with its BF16 instructions, by AMX, or by those
    of ARM."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return reorders_bfloat16()
    wide = cpu_capability().startswith(("AVX512", "AMX"))
    return wide and reorders_bfloat16() and (_says("_is_avx512_bf16_supported") or _says("_is_amx_tile_supported"))


def _says(probe: str) -> bool:
    """What torch answers to a question; False if it does not know the question."""
    ask: Any = getattr(torch.cpu, probe, None)
    return ask is not None and bool(ask())
