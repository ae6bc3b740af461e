"""Sizes of known models, for networks with random weights: the time of a step does not depend on their values.

For benchmarks: `shape:NAME` is accepted wherever the name of a model is. Such a model has the tokenizer of the embedded
model, the understudy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

PREFIX = "shape:"


class ModelShape(NamedTuple):
    """A model type of transformers and the sizes of its config."""

    model_type: str
    sizes: dict[str, Any]


SHAPES = {
    "qwen3-0.6b": ModelShape(
        "qwen3",
        {
            "hidden_size": 1024,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 3072,
            "vocab_size": 151936,
            "max_position_embeddings": 40960,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
    ),
    "llama-3.2-1b": ModelShape(
        "llama",
        {
            "hidden_size": 2048,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "intermediate_size": 8192,
            "vocab_size": 128256,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
        },
    ),
    "llama-3.1-8b": ModelShape(
        "llama",
        {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 14336,
            "vocab_size": 128256,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": False,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 5e5,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
        },
    ),
}
