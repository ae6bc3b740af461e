"""Reports on a model as vLLM loads it: `agentcho doctor MODEL --engine vllm`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentcho.integrations.vllm.bindings import FOUND
from agentcho.integrations.vllm.engine import VllmEngine
from agentcho.protocol.variables import NO_VARIABLES, Variables
from agentcho.runner.doctor import DoctorReport, DoctorRow, template_rows
from agentcho.runner.model.loading import EngineSizes


def doctor(
    model: str | Path,
    dtype: str = "auto",
    variables: Variables = NO_VARIABLES,
    options: Mapping[str, Any] | None = None,
    context: int | None = None,
) -> DoctorReport:
    """Load a model in vLLM, and report on it. Raises as `VllmEngine.load` does, with the cause and the remedy."""
    sizes = EngineSizes(context)
    with VllmEngine.load(model, dtype, sizes, differs="accept", variables=variables, options=options) as engine:
        found, layers = engine.fingerprint, engine.layers
        backends = sorted({layer.backend for layer in layers})
        turning = ", ".join(sorted({layer.form for layer in layers}))
        divided = f", divided among {engine.division.ranks} ranks" if engine.division.ranks > 1 else ""
        rows = [
            DoctorRow("model", None, found["model_type"], f"{found['dtype']} on {found['device']}"),
            DoctorRow("engine", None, found["engine"], f"at most {engine.context} tokens in one request{divided}"),
            DoctorRow("attention", None, ", ".join(backends), "keys and values are found again where it writes them"),
            DoctorRow(
                "layers",
                None,
                str(len(layers)),
                f"{layers[0].heads} key-value heads of {layers[0].dim}; keys turn by rotary positions ({turning})",
            ),
            *template_rows(engine),
        ]
        notes = [
            f"vLLM {FOUND} computes; what is never read, and by whom, is decided as in every engine",
            "no repair, no way of reuse other than rotate, no adapters, no deterministic profile: see docs/vllm.md",
        ]
        return DoctorReport(str(model), rows, None, notes)
