"""Opens the model of a server that a run is configured with.

Does not know: how it is asked.
"""

from __future__ import annotations

from agentcho.config import API, ModelConfig, served
from agentcho.errors import ConfigError
from agentcho.extras import require
from agentcho.integrations.endpoints.address import address_of, key_of
from agentcho.protocol.text_calls import TextPort


def open_endpoint(config: ModelConfig, name: str) -> TextPort:
    """The model of a server, as configured; `name` is what the run calls it. Nothing is sent yet. `ConfigError`: there
    is no address, or no key where one is needed. `ExtraMissing`: the client is not installed."""
    if not served(config.model) or not config.model.removeprefix(API).strip():
        raise ConfigError(f"model {name}: {config.model!r} is not a model behind an API; give openai:NAME")
    address = address_of(config, name)
    key = key_of(config, name, address)
    require("to ask models of servers", "endpoints")
    from agentcho.integrations.endpoints.client import Endpoint

    return Endpoint(config, name, address, key)
