"""Fingerprints of what the bits of a model's encodings depend on, for encodings kept on disk. Independent of calls."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from agentcho.records.environment import versions
from agentcho.runner.model.device import DevicePlacement, cpu_capability, gpu_name
from agentcho.runner.model.model import Model, ModelSource

if TYPE_CHECKING:
    from agentcho.engine.persistent_files import PersistentFiles

OF_MODEL = ("model", "model_type", "weights", "tokenizer", "dtype")
"""Fields of a model's fingerprint that all files of a folder share."""


def check_kept(folder: Path, source: ModelSource, place: DevicePlacement) -> None:
    """Run `engine.persistent_files.check` with what is known of a model before its weights are read."""
    from agentcho.engine.persistent_files import check  # POSIX only

    numbers = {} if place.dtype == "auto" else {"dtype": place.dtype}
    kind = {"model_type": source.config.model_type, "bits": place.bits or "none"}
    check(folder, {"model": _name(source)} | kind | numbers)


def _processor() -> str:
    """The processor model, if the system reports it: libraries choose kernels by more than `cpu_capability`."""
    try:
        said = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    return "; ".join(line for line in said if line.startswith(("vendor_id", "model", "flags", "CPU ", "Features")))


def _name(source: ModelSource) -> str:
    """A name of a model that does not depend on the working directory."""
    if source.gguf is not None:
        return str(source.gguf.path.resolve())
    return (
        str(Path(source.path).resolve()) if source.name == source.path and Path(source.path).is_dir() else source.name
    )


def kept_files(folder: Path, model: Model, context: int) -> PersistentFiles:
    """The files of a model of which `context` positions are used. It reads all weights, for their digest. Raises what
    `PersistentFiles` raises."""
    from agentcho.engine.persistent_files import Fingerprint, PersistentFiles

    known = model.fingerprint()
    of_model = {name: known[name] for name in OF_MODEL} | {"model": _name(model.source), "bits": model.bits or "none"}
    beside = {name: value for name, value in known.items() if name not in OF_MODEL}
    beside |= {
        **{name: version for name, version in versions().items() if name != "llguidance"},
        "origin": model.origin,
        "context": str(context),
        "packed": str(model.prepacked),
        "threads": str(model.threads.count),
        "processor": f"{platform.machine()} {cpu_capability()} {_processor()}",
        "devices": str([f"{device} {gpu_name(device)}" for device in model.devices]),
    }
    if model.fused:
        beside["fused"] = str(model.fused)
    return PersistentFiles(folder, Fingerprint(of_model, beside))
