"""A model as the numbers that determine the cost of a step. Independent of machines."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from agentcho.errors import ConfigError
from agentcho.runner.model.shapes import PREFIX, SHAPES
from agentcho.runner.understudy import weights_path

UNDERSTUDY = "understudy"


class CostShape(NamedTuple):
    """`layer_weights`: parameters that every token of a step goes through; `head_weights`: those of the LM head, which
    only tokens with requested logits go through. `stored`: all parameters. `bytes`: per number."""

    name: str
    layers: int
    layer_weights: int
    head_weights: int
    stored: int
    query_size: int
    kv_size: int
    bytes: int

    @property
    def token_bytes(self) -> int:
        """Bytes of the keys and values of one token, over all layers."""
        return 2 * self.layers * self.kv_size * self.bytes


def shape(name: str) -> CostShape:
    """A known shape by its name. Raises `ConfigError` for an unknown one."""
    plain = name.removeprefix(PREFIX)
    if plain == UNDERSTUDY:
        sizes: dict[str, Any] = json.loads((weights_path() / "config.json").read_bytes())
    elif plain in SHAPES:
        sizes = SHAPES[plain].sizes
    else:
        raise ConfigError(f"unknown shape {name!r}; give one of {', '.join(SHAPES)}, {UNDERSTUDY}")
    hidden, layers = sizes["hidden_size"], sizes["num_hidden_layers"]
    query = sizes["num_attention_heads"] * sizes["head_dim"]
    kv = sizes["num_key_value_heads"] * sizes["head_dim"]
    attention = hidden * (2 * query + 2 * kv)
    layer_weights = layers * (attention + 3 * hidden * sizes["intermediate_size"])
    head = hidden * sizes["vocab_size"]
    embedded = 0 if sizes["tie_word_embeddings"] else head
    return CostShape(
        name=plain,
        layers=layers,
        layer_weights=layer_weights,
        head_weights=head,
        stored=layer_weights + head + embedded,
        query_size=query,
        kv_size=kv,
        bytes=4 if plain == UNDERSTUDY else 2,
    )
