"""A model of a run that is an adapter on an engine shared with other models of the run.

Several adapters can then run in one forward pass.
"""

from __future__ import annotations

from typing import Any, cast

from agentcho.protocol.call import EnginePort


class AdapterEngine:
    """An engine whose calls name one adapter by its digest. Everything else is the engine's own."""

    def __init__(self, engine: EnginePort, adapter: str) -> None:
        self.engine, self.adapter = engine, adapter

    @classmethod
    def port(cls, engine: EnginePort, adapter: str) -> EnginePort:
        """Return an adapter engine, typed as a model of a run."""
        return cast(EnginePort, cls(engine, adapter))

    @property
    def fingerprint(self) -> dict[str, str]:
        """The fingerprint of the engine, with the adapter."""
        return {**self.engine.fingerprint, "adapter": self.adapter}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


def engine_and_adapter(model: EnginePort) -> tuple[EnginePort, str | None]:
    """Return the engine of a model of a run, and its adapter there. None means the engine's own weights."""
    found: Any = model
    return (found.engine, found.adapter) if isinstance(found, AdapterEngine) else (model, None)
