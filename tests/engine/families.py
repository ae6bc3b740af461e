"""Tiny random models of every family, built offline from stock configuration classes with fixed seeds.

Each family has every kind of layer its real models have, and states what each layer may see: the oracle takes the
masks from here, not from the code under test. Must not import agentcho.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import PreTrainedModel

from .templates import tokenizer

CONTEXT = 4096
SOME = ("llama", "gemma2", "llama4_text", "gpt_oss", "gpt_neox", "cohere2")
"""One family for each kind of attention: plain, windows and soft caps, chunks, sinks, partial rotary, no positions."""


@dataclass(frozen=True)
class Layer:
    """What a query of one layer may see: ``full``, a ``sliding`` window or its own ``chunked`` block."""

    kind: str = "full"
    size: int = 0


@dataclass(frozen=True)
class Family:
    """One family: its stock classes' stem, settings that override the common ones, its layers and its chat style."""

    name: str
    stem: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    layers: tuple[Layer, ...] = (Layer(),) * 4
    style: str = "llama3"
    head: str = "ForCausalLM"

    def config(self, **more: Any) -> Any:
        """The stock configuration: the common settings, overridden by the family's own and by `more`."""
        suffix = "TextConfig" if self.name in ("gemma3_text", "llama4_text") else "Config"
        return getattr(transformers, self.stem + suffix)(**{**_common(len(self.layers)), **self.settings, **more})

    def build(self, seed: int = 1, **more: Any) -> PreTrainedModel:
        """A float32 model with eager attention, random norms, biases and sinks, and logits of scale 1."""
        torch.manual_seed(seed)
        vocab = {"vocab_size": len(tokenizer(self.style)), "attn_implementation": "eager"}
        model = getattr(transformers, self.stem + self.head)(self.config(**{**vocab, **more}))
        return _shaken(model.eval().float())

    def save(self, folder: Path, seed: int = 1, **more: Any) -> PreTrainedModel:
        """Build the model and save it with the tokenizer of its style in a folder that ``from_pretrained`` reads."""
        model = self.build(seed, **more)
        model.save_pretrained(folder)
        tokenizer(self.style).save_pretrained(folder)
        return model


def families() -> tuple[Family, ...]:
    """The families that must be supported."""
    return _llamas() + _windowed() + _partial() + _mixed() + _gemmas() + _scaled()


def each(*quick: str) -> list[Any]:
    """Every family as a test parameter; those not named run in the slow suite."""
    return [cell(family, quick=family.name in quick) for family in families()]


def named(*names: str, quick: str) -> list[Any]:
    """The named families as test parameters, all but `quick` in the slow suite."""
    return [cell(family, quick=family.name == quick) for family in families() if family.name in names]


def cell(*values: Any, quick: bool) -> Any:
    """One cell of a test matrix, for the slow suite only unless `quick`."""
    names = (getattr(value, "name", None) or getattr(value, "__name__", None) or str(value) for value in values)
    return pytest.param(*values, id="-".join(names).replace(" ", "-"), marks=() if quick else pytest.mark.slow)


def llama_family() -> Family:
    """The plain family, for tests that need no particular one."""
    return families()[0]


def middle_sized() -> Family:
    """A llama wide enough for kernels to compute one row and several rows in different ways."""
    sizes = {"hidden_size": 256, "intermediate_size": 688, "num_attention_heads": 8, "num_key_value_heads": 4}
    return Family("llama", "Llama", {**sizes, "initializer_range": 0.06})


def refused() -> dict[str, Family]:
    """Models that must be refused, by reason."""
    llama = {"max_position_embeddings": 64}
    dynamic = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
    factors = {"short_factor": [1.0] * 8, "long_factor": [2.0 + i for i in range(8)], "rope_theta": 1e4}
    longrope = {"rope_type": "longrope", "original_max_position_embeddings": 64, **factors}
    long = {"original_max_position_embeddings": 64, "pad_token_id": 0, "rope_parameters": longrope}
    return {
        "learned positions": Family("gpt2", "GPT2", {"n_inner": 128}, head="LMHeadModel"),
        "learned norm after rotary": Family("hunyuan_v1_dense", "HunYuanDenseV1", {"head_dim": 16}),
        "recurrent": Family("mamba", "Mamba", {"state_size": 8}),
        "recurrent hybrid": Family("qwen3_next", "Qwen3Next", _hybrid(), style="chatml"),
        "dynamic": Family("llama", "Llama", {**llama, "rope_parameters": dynamic}),
        "longrope": Family("phi3", "Phi3", long),
        "no template": Family("llama", "Llama", style="bare"),
    }


def _llamas() -> tuple[Family, ...]:
    granite = {"attention_multiplier": 0.3, "residual_multiplier": 0.5, "embedding_multiplier": 2.0}
    return (
        Family("llama", "Llama"),
        Family("qwen2", "Qwen2", style="chatml"),
        Family("qwen3", "Qwen3", {"head_dim": 32}, style="chatml"),
        Family("olmo2", "Olmo2", style="chatml"),
        Family("granite", "Granite", {**granite, "logits_scaling": 1.5}, style="post"),
    )


def _windowed() -> tuple[Family, ...]:
    window = (Layer("sliding", 12),) * 4
    return (
        Family("mistral", "Mistral", {"sliding_window": 12}, window, "gemma"),
        Family("ministral3", "Ministral3", _ministral(), window, "gemma"),
        Family("phi3", "Phi3", {"sliding_window": 12, "pad_token_id": 0}, window, "named"),
        Family("starcoder2", "Starcoder2", {"sliding_window": 12}, window, "post"),
    )


def _partial() -> tuple[Family, ...]:
    half = {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.5}
    return (
        Family("phi", "Phi", {"rope_parameters": half, "qk_layernorm": True}, style="unused"),
        Family("glm4", "Glm4", {"head_dim": 16, "rope_parameters": half}, style="chatml"),
        Family("gpt_neox", "GPTNeoX", {"rope_parameters": half, "num_key_value_heads": 4}, style="named"),
    )


def _mixed() -> tuple[Family, ...]:
    near, far = Layer("sliding", 8), Layer()
    kinds, layers = _alternate(near, far, near, far)
    smol = {"no_rope_layers": [1, 0, 1, 0], "use_sliding_window": True, "sliding_window": 8}
    nope = {"layer_types": kinds, "sliding_window": 8}
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    sparse = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "mlp_only_layers": [1]}
    return (
        Family("smollm3", "SmolLM3", smol, (far, near, far, near), "chatml"),
        Family("cohere2", "Cohere2", {**nope, "logit_scale": 1.0}, layers, "gemma"),
        Family("exaone4", "Exaone4", nope, layers, "named"),
        Family("mixtral", "Mixtral", {**experts, "sliding_window": None}, style="post"),
        Family("qwen3_moe", "Qwen3Moe", {**sparse, "head_dim": 16}, style="chatml"),
        Family("llama4_text", "Llama4", *_llama4()),
        Family("gpt_oss", "GptOss", {**experts, **nope, "head_dim": 16}, layers, "unused"),
    )


def _gemmas() -> tuple[Family, ...]:
    near, far = Layer("sliding", 8), Layer()
    kinds, layers = _alternate(near, far, near, far)
    common = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8, "layer_types": kinds}
    local = {"rope_type": "default", "rope_theta": 1e2}
    rope = {
        "sliding_attention": local,
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e4},
    }
    return (
        Family("gemma2", "Gemma2", {**common, "attn_logit_softcapping": 2.0}, layers, "gemma"),
        Family("gemma3_text", "Gemma3", {**common, "rope_parameters": rope}, layers, "gemma"),
    )


def _scaled() -> tuple[Family, ...]:
    yarn = {"rope_type": "yarn", "factor": 8.0, "rope_theta": 1e4, "original_max_position_embeddings": CONTEXT // 8}
    near, far = Layer("sliding", 8), Layer()
    kinds, layers = _alternate(far, near, far, near)
    slide = {"use_sliding_window": True, "sliding_window": 8, "layer_types": kinds, "head_dim": 16}
    return (
        Family("llama yarn", "Llama", {"rope_parameters": yarn}),
        Family("qwen3 sliding", "Qwen3", slide, layers, "chatml"),
    )


def _ministral() -> dict[str, Any]:
    yarn = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": CONTEXT // 4,
    }
    rope = {**yarn, "mscale": 1.0, "mscale_all_dim": 0.5, "llama_4_scaling_beta": 0.1}
    return {"head_dim": 16, "sliding_window": 12, "rope_parameters": rope}


def _llama4() -> tuple[dict[str, Any], tuple[Layer, ...]]:
    settings = {
        "head_dim": 16,
        "no_rope_layers": [1, 0, 1, 0],
        "attention_chunk_size": 32,
        "num_local_experts": 4,
        "interleave_moe_layer_step": 2,
        "intermediate_size_mlp": 128,
    }
    return settings, (Layer("chunked", 32), Layer(), Layer("chunked", 32), Layer())


def _alternate(*layers: Layer) -> tuple[list[str], tuple[Layer, ...]]:
    return [f"{layer.kind}_attention" for layer in layers], layers


def _hybrid() -> dict[str, Any]:
    linear = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16}
    kinds = ["linear_attention", "full_attention"] * 2
    return {
        **linear,
        **experts,
        "linear_value_head_dim": 16,
        "shared_expert_intermediate_size": 32,
        "layer_types": kinds,
    }


def _common(layers: int) -> dict[str, Any]:
    return {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.125,
        "tie_word_embeddings": False,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }


@torch.no_grad()
def _shaken(model: PreTrainedModel) -> PreTrainedModel:
    """Move every parameter vector off its initial ones or zeros, so that leaving it out changes the result."""
    for _, vector in sorted(model.named_parameters()):
        if vector.ndim == 1:
            vector.add_(torch.randn_like(vector) * 0.3)
    return model
