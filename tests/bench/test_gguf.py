"""A network's GGUF file, read back: every weight in llama.cpp's order, and networks that cannot be written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from agentcho.errors import ConfigError, ExtraMissing
from agentcho.lab.bench.peers.gguf import check_writable, neighbours, write_gguf

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 96,
    "vocab_size": 400,
    "max_position_embeddings": 512,
}
SCALED = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}


def network(kind: str, **more: Any) -> Any:
    torch.manual_seed(1)
    drawn: Any = AutoModelForCausalLM
    made = drawn.from_config(AutoConfig.for_model(kind, **SIZES | more))
    for weight in made.parameters():
        weight.data.normal_()
    return made.eval()


def read(file: Path) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    gguf = pytest.importorskip("gguf", reason="agentcho[peers] is not installed")
    found = gguf.GGUFReader(file)
    return {key: field.contents() for key, field in found.fields.items()}, {t.name: t.data for t in found.tensors}


def test_every_weight_is_read_back(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="agentcho[peers] is not installed")
    made = network("qwen3", tie_word_embeddings=True)
    write_gguf(made, "tiny", tmp_path / "tiny.gguf")
    told, found = read(tmp_path / "tiny.gguf")
    weights = dict(made.named_parameters())
    assert len(found) == len(weights)
    same = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "blk.1.attn_q.weight": "model.layers.1.self_attn.q_proj.weight",
        "blk.1.attn_k_norm.weight": "model.layers.1.self_attn.k_norm.weight",
        "blk.0.ffn_down.weight": "model.layers.0.mlp.down_proj.weight",
    }
    for name, there in same.items():
        assert np.array_equal(found[name], weights[there].detach().numpy()), name
    kept = sorted(float(np.abs(each).sum(dtype=np.float64)) for each in found.values())
    assert np.allclose(kept, sorted(float(w.detach().abs().double().sum()) for w in weights.values()))
    assert (told["general.architecture"], told["qwen3.block_count"], told["qwen3.attention.key_length"]) == (
        "qwen3",
        2,
        32,
    )
    assert len(told["tokenizer.ggml.tokens"]) == len(set(told["tokenizer.ggml.tokens"])) == 400


def test_queries_and_keys_of_a_llama_are_turned_by_neighbours(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="agentcho[peers] is not installed")
    made = network("llama", rope_parameters=SCALED)
    write_gguf(made, "tiny", tmp_path / "tiny.gguf")
    _, found = read(tmp_path / "tiny.gguf")
    weight = made.model.layers[0].self_attn.k_proj.weight.detach()
    for head in range(2):
        for pair in range(16):
            for half in range(2):
                there = found["blk.0.attn_k.weight"][head * 32 + 2 * pair + half]
                assert np.array_equal(there, weight[head * 32 + 16 * half + pair].numpy())
    assert np.array_equal(found["blk.0.attn_v.weight"], made.model.layers[0].self_attn.v_proj.weight.detach().numpy())
    factors = found["rope_freqs.weight"]
    assert factors.shape == (16,)
    assert factors[0] == pytest.approx(1)
    assert factors[-1] == pytest.approx(8)
    assert np.array_equal(found["output.weight"], made.lm_head.weight.detach().numpy())
    assert neighbours(torch.arange(4.0)[:, None], 1)[:, 0].tolist() == [0, 2, 1, 3]


def test_what_cannot_be_written_is_said_before_weights_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcho.extras._installed", lambda module: True)
    with pytest.raises(
        ConfigError, match=r"tiny is a gemma2; files for llama\.cpp can be written only for llama, qwen2, qwen3"
    ):
        check_writable(SimpleNamespace(model_type="gemma2"), "tiny")
    yarn = SimpleNamespace(model_type="llama", rope_parameters={"rope_type": "yarn"}, vocab_size=400)
    with pytest.raises(ConfigError, match="tiny has rotary positions of type yarn"):
        check_writable(yarn, "tiny")
    narrow = SimpleNamespace(
        model_type="qwen2", rope_parameters=None, vocab_size=400, head_dim=32, num_attention_heads=4, hidden_size=64
    )
    with pytest.raises(ConfigError, match="tiny is a qwen2 with heads of 32"):
        check_writable(narrow, "tiny")
    with pytest.raises(ConfigError, match="tiny has 100 tokens"):
        check_writable(SimpleNamespace(model_type="llama", rope_parameters=None, vocab_size=100), "tiny")
    monkeypatch.setattr("agentcho.extras._installed", lambda module: False)
    with pytest.raises(ExtraMissing, match=r"agentcho\[peers\]"):
        check_writable(SimpleNamespace(model_type="llama"), "tiny")
