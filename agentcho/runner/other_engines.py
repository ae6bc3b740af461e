"""Finds an engine that does not compute with torch itself, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from agentcho.config import NOT_OF_VLLM, VLLM
from agentcho.engine.core import EngineCore
from agentcho.errors import ConfigError, ModelError

FOUND = {VLLM: ("agentcho.integrations.vllm.engine", "VllmEngine")}
"""The module and class of each engine. A module is imported only when its engine is requested, because it needs an
extra."""
FREE = {"device": "auto", "threads": "auto"}
"""The values that leave an option open to the engine, besides None and False."""


class LoadsModels(Protocol):
    """See `VllmEngine.load`."""

    def load(self, *args: Any, **options: Any) -> EngineCore: ...


def other_engine(name: str, given: Mapping[str, Any]) -> LoadsModels:
    """The class of the engine of that name. Raises `ConfigError` if there is none, and `ModelError` if it does not
    support an option that is given."""
    if name not in FOUND:
        raise ConfigError(f"unknown engine {name!r}; give agentcho or {', '.join(FOUND)}")
    for option, value in given.items():
        if value not in (None, False, FREE.get(option)):
            raise ModelError(f"{option} cannot be used with engine {name}: {NOT_OF_VLLM[option]}; remove one of them")
    module, of = FOUND[name]
    found: LoadsModels = getattr(import_module(module), of)
    return found
