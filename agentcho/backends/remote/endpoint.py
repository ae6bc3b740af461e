"""Opens the model of a server that a run is configured with.

Does not know: how it is asked.
"""

from __future__ import annotations

from agentcho.backends.remote.address import address_of, key_of
from agentcho.calls.texts import TextPort
from agentcho.config import ModelConfig
from agentcho.errors import ConfigError
from agentcho.extras import require

PREFIX = "openai:"


def is_endpoint(model: str) -> bool:
    """Whether a model is one of a server, by its name in a configuration."""
    return model.startswith(PREFIX)


def open_endpoint(config: ModelConfig, name: str) -> TextPort:
    """The model of a server, as configured; `name` is what the run calls it. Nothing is sent yet. `ConfigError`: there
    is no address, or no key where one is needed. `ExtraMissing`: the client is not installed."""
    if not is_endpoint(config.model) or not config.model.removeprefix(PREFIX).strip():
        raise ConfigError(f"model {name}: {config.model!r} is no model of a server; give openai:NAME")
    address = address_of(config, name)
    key = key_of(config, name, address)
    require("to ask models of servers", "endpoints")
    from agentcho.backends.remote.client import Endpoint

    return Endpoint(config, name, address, key)
