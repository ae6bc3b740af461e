"""Opens a model behind a server, as a run's configuration describes it."""

from __future__ import annotations

from agentcho.config import API, ModelConfig, served
from agentcho.errors import ConfigError
from agentcho.extras import require
from agentcho.integrations.endpoints.address import address_of, key_of
from agentcho.protocol.text_calls import TextPort


def open_endpoint(config: ModelConfig, name: str) -> TextPort:
    """Open a model behind a server; `name` is what the run calls it. Nothing is sent yet. `ConfigError`: the address is
    missing, or a key that is needed. `ExtraMissing`: the client is not installed."""
    if not served(config.model) or not config.model.removeprefix(API).strip():
        raise ConfigError(f"model {name}: {config.model!r} is not a model behind an API; give openai:NAME")
    address = address_of(config, name)
    key = key_of(config, name, address)
    require("to ask models of servers", "endpoints")
    from agentcho.integrations.endpoints.client import Endpoint

    return Endpoint(config, name, address, key)
