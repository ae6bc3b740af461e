"""Writes a transformers network as a GGUF file for llama.cpp, with every weight unchanged in float32.

Quantization is left to llama.cpp. The vocabulary is a placeholder of the right size, because prompts are sent as token
ids. Tensor names are those of the package `gguf`; the row order of a llama's queries and keys is that of llama.cpp's
`convert_hf_to_gguf.py` (https://github.com/ggml-org/llama.cpp).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agentcho.errors import ConfigError
from agentcho.extras import require

KINDS = {"llama": True, "qwen2": False, "qwen3": False}
"""The supported model types, and whether llama.cpp rotates adjacent pairs in their queries and keys, where transformers
rotates halves."""
ROPES = ("default", "llama3")
ASCII, NORMAL, BYTE = 128, 1, 6
"""The number of byte tokens in the placeholder vocabulary, and GGUF's numbers for the kinds of tokens."""
SPACE = "\u2581"


def check_writable(config: Any, name: str) -> None:
    """Check before weights are drawn. `ExtraMissing`: the package gguf. `ConfigError`: the model is not supported."""
    require("to write a GGUF file", "peers")
    if config.model_type not in KINDS:
        known = ", ".join(KINDS)
        raise ConfigError(f"{name} is a {config.model_type}; files for llama.cpp can be written only for {known}")
    rope = (config.rope_parameters or {}).get("rope_type", "default")
    if rope not in ROPES:
        raise ConfigError(f"{name} has rotary positions of type {rope}; supported are {' and '.join(ROPES)}")
    if config.model_type == "qwen2" and _dim(config) * config.num_attention_heads != config.hidden_size:
        raise ConfigError(f"{name} is a qwen2 with heads of {_dim(config)}; llama.cpp needs heads that fill the width")
    if config.vocab_size <= ASCII + 2:
        raise ConfigError(f"{name} has {config.vocab_size} tokens; a placeholder vocabulary needs {ASCII + 3} or more")


def write_gguf(network: nn.Module, name: str, file: Path) -> None:
    """Write all weights of a network, tied ones once. Raises what `check_writable` raises, and `OSError`."""
    config: Any = network.config
    check_writable(config, name)
    import gguf

    writer: Any = gguf.GGUFWriter(file, config.model_type)
    _describe(writer, config, name)
    _vocabulary(writer, config.vocab_size)
    tensors = dict(_tensors(network, config))
    for key, tensor in tensors.items():
        writer.add_tensor_info(key, tensor.shape, np.dtype(np.float32), tensor.numel() * 4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for key in list(tensors):
        writer.write_tensor_data(tensors.pop(key).detach().float().cpu().contiguous().numpy())
    writer.close()


def _dim(config: Any) -> int:
    """The head dimension."""
    return getattr(config, "head_dim", None) or int(config.hidden_size // config.num_attention_heads)


def _describe(writer: Any, config: Any, name: str) -> None:
    heads, size = config.num_attention_heads, _dim(config)
    writer.add_name(name)
    writer.add_file_type(0)  # float32
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_rope_dimension_count(size)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)


def _vocabulary(writer: Any, size: int) -> None:
    """Write the placeholder vocabulary: unique words that occur in no text, then ASCII and a space, so that any plain
    text can be tokenized. The last of the words is the EOS token, because a server requires one."""
    words = size - ASCII - 1
    tokens = [f"t{number} " for number in range(words)] + [f"<0x{byte:02X}>" for byte in range(ASCII)] + [SPACE]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * size)
    writer.add_token_types([NORMAL] * words + [BYTE] * ASCII + [NORMAL])
    for named in (writer.add_bos_token_id, writer.add_eos_token_id, writer.add_unk_token_id):
        named(words - 1)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)


def _tensors(network: nn.Module, config: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield all weights with llama.cpp's names."""
    import gguf

    arch = next(arch for arch, each in gguf.MODEL_ARCH_NAMES.items() if each == config.model_type)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    if (factors := _factors(network, config)) is not None:
        yield "rope_freqs.weight", factors
    for name, weight in network.named_parameters():
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        part = name.split(".")[-2]
        turned = KINDS[config.model_type] and part in heads
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise ConfigError(f"llama.cpp has no counterpart of the weight {name} of a {config.model_type}")
        yield found, neighbours(weight, heads[part]) if turned else weight


def neighbours(weight: Tensor, heads: int) -> Tensor:
    """Reorder the rows of queries or keys `[heads * dim, ...]` so that the two of each rotated pair are adjacent."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def _factors(network: Any, config: Any) -> Tensor | None:
    """The ratio of each unscaled rotary frequency to the scaled one; None: there is no scaling."""
    if config.rope_parameters.get("rope_type", "default") == "default":
        return None
    used = network.model.rotary_emb.inv_freq.detach().double().cpu()
    steps = torch.arange(len(used), dtype=torch.float64) / len(used)
    factors: Tensor = config.rope_parameters["rope_theta"] ** -steps / used
    return factors.float()
