"""Writes GGUF files of tiny models with the gguf package, in the form of llama.cpp's converter.

Must not import agentcho.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

NORMAL, CONTROL, SPELT = 1, 3, 4
"""Token types: normal text, control and user-defined."""
TYPES: Any = gguf.GGMLQuantizationType


def write(
    file: Path,
    network: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    numbers: str = "F32",
    keys: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Path:
    """Write a llama or qwen3 model: matrices of type `numbers`, norms in F32. `keys` adds or overrides metadata, `more`
    adds tensors."""
    config: Any = network.config
    writer = gguf.GGUFWriter(file, config.model_type)
    writer.add_name("tiny")
    _metadata(writer, config)
    _vocabulary(writer, tokenizer)
    for key, value in (keys or {}).items():
        kind: Any = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(value)]
        kind(key, value)
    names = gguf.get_tensor_name_map(_arch(config.model_type), config.num_hidden_layers)
    for name, weight in network.state_dict().items():
        if name != "lm_head.weight" or not config.tie_word_embeddings:
            called = names.get_name(name, (".weight", ".bias"))
            _add(writer, str(called), _turned(name, weight, config), numbers)
    for name, weight in (more or {}).items():
        _add(writer, name, weight, "F32")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def rounded(weight: torch.Tensor, numbers: str) -> torch.Tensor:
    """A matrix after quantizing and dequantizing it with the gguf package."""
    kind = TYPES[numbers]
    return torch.from_numpy(gguf.dequantize(gguf.quantize(weight.numpy(), kind), kind).copy())


def _arch(kind: str) -> Any:
    return next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == kind)


def _metadata(writer: Any, config: Any) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    if config.model_type == "llama":
        writer.add_rope_dimension_count(config.head_dim)
    else:
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)


def _vocabulary(writer: Any, tokenizer: PreTrainedTokenizerFast) -> None:
    by_id = sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])
    added = tokenizer.added_tokens_decoder
    special = {id: token.special for id, token in added.items()}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token for token, _ in by_id])
    kinds = [NORMAL if id not in special else CONTROL if special[id] else SPELT for _, id in by_id]
    writer.add_token_types(kinds)
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(pair) for pair in merges])
    if tokenizer.bos_token_id is not None:
        writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    if tokenizer.chat_template is not None:
        writer.add_chat_template(tokenizer.chat_template)


def _turned(name: str, weight: torch.Tensor, config: Any) -> torch.Tensor:
    """Reorder rows for llama: llama.cpp rotates neighbouring pairs where transformers rotates halves."""
    heads = {"q_proj.weight": config.num_attention_heads, "k_proj.weight": config.num_key_value_heads}
    found = next((count for end, count in heads.items() if name.endswith(end)), None)
    if config.model_type != "llama" or found is None:
        return weight
    return weight.view(found, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def _add(writer: Any, name: str, weight: Any, numbers: str) -> None:
    array = weight.detach().float().numpy() if isinstance(weight, torch.Tensor) else np.asarray(weight, np.float32)
    kind = TYPES[numbers] if array.ndim > 1 else TYPES.F32
    writer.add_tensor(name, gguf.quantize(np.ascontiguousarray(array), kind), raw_dtype=kind)
