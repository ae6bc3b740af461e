"""Optional libraries: which extra installs them, and how large ones are imported.

An error for a missing library can then name the command that installs it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal

from agentcho.errors import ExtraMissing

Extra = Literal[
    "compressed-tensors",
    "datasets",
    "endpoints",
    "gguf",
    "lab",
    "math",
    "mcp",
    "otel",
    "peers",
    "people",
    "ray",
    "serve",
    "textarena",
    "tune",
    "vllm",
]
LIBRARIES: Mapping[Extra, Mapping[str, str]] = {
    "compressed-tensors": {"compressed_tensors": "compressed-tensors"},
    "datasets": {"datasets": "datasets"},
    "endpoints": {"jsonschema": "jsonschema", "openai": "openai"},
    "gguf": {"gguf": "gguf"},
    "lab": {"matplotlib": "matplotlib", "scipy": "scipy", "sklearn": "scikit-learn"},
    "math": {"math_verify": "math-verify"},
    "mcp": {"mcp": "mcp"},
    "otel": {"opentelemetry": "opentelemetry-api"},
    "peers": {"gguf": "gguf"},
    "people": {"jsonschema": "jsonschema", "prompt_toolkit": "prompt-toolkit"},
    "ray": {"ray": "ray"},
    "serve": {
        "jsonschema": "jsonschema",
        "prometheus_client": "prometheus-client",
        "starlette": "starlette",
        "uvicorn": "uvicorn",
    },
    "textarena": {"textarena": "textarena"},
    "tune": {"peft": "peft"},
    "vllm": {"vllm": "vllm"},
}
"""The modules that each extra provides, with the names under which their libraries are installed."""


def require(what: str, *extras: Extra) -> None:
    """Raise `ExtraMissing` if a library of these extras is not installed. Nothing is imported.

    `what` ends the sentence "... is needed", such as "to train adapters".
    """
    lacking = {extra: [name for module, name in LIBRARIES[extra].items() if not _installed(module)] for extra in extras}
    short = [extra for extra, names in lacking.items() if names]
    if short:
        raise ExtraMissing([name for extra in short for name in lacking[extra]], short, what)


def _installed(module: str) -> bool:
    return sys.modules.get(module) is not None or find_spec(module) is not None


@contextmanager
def importing() -> Iterator[None]:
    """A context without garbage collection.

    Imported modules are not garbage, and searching them again and again takes a sixth of the time that torch and
    transformers take to import.
    """
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()
