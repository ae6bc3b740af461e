"""Checkpoints whose config declares low-bit weights: which run, and which are refused before weights are read."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from agentcho import Decode, Engine, Sampling
from agentcho.errors import AgentchoError, ExtraMissing, ModelError, UnsupportedModel
from agentcho.runner.model import quantized_checkpoint

from ..device import DEVICE
from .families import llama_family

BLOCK = 32
TOKEN = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}
FP8 |= {"modules_to_not_convert": ["lm_head"]}
COMPRESSED = pytest.mark.skipif(importlib.util.find_spec("compressed_tensors") is None, reason="it is not installed")


def compressed(**given: Any) -> dict[str, Any]:
    """A compressed-tensors config: int8 weights with one scale per row, and rounded activations."""
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": TOKEN, "output_activations": None} | given
    how = {"quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed"}
    return how | {"ignore": ["lm_head"], "config_groups": {"group_0": group}}


def says(folder: Path, how: dict[str, Any]) -> Path:
    """A folder with a config and no weights."""
    folder.mkdir(exist_ok=True)
    config = json.loads(llama_family().config().to_json_string(use_diff=False)) | {"quantization_config": how}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def by_rows(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    scale = weight.abs().amax(1, keepdim=True) / 127
    numbers = (weight / scale).round()
    return {"weight": numbers.to(torch.int8), "weight_scale": scale}, numbers * scale


def by_blocks(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    blocks = weight.view(weight.shape[0] // BLOCK, BLOCK, weight.shape[1] // BLOCK, BLOCK)
    scale = blocks.abs().amax((1, 3)) / 448
    numbers = (blocks / scale[:, None, :, None]).to(torch.float8_e4m3fn)
    whole = (numbers.float() * scale[:, None, :, None]).reshape(weight.shape)
    return {"weight": numbers.reshape(weight.shape).contiguous(), "weight_scale_inv": scale}, whole


def by_blocks_and_inputs(weight: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    parts, whole = by_blocks(weight)
    return parts | {"activation_scale": torch.tensor(0.5)}, whole


def pair(folder: Path, how: dict[str, Any], rounded: Any) -> tuple[Path, Path]:
    """A folder with low-bit weights, and one with the same weights dequantized by hand."""
    few, whole = folder / "few", folder / "whole"
    for each in (few, whole):
        llama_family().save(each)
    weights = load_file(whole / "model.safetensors")
    kept: dict[str, Tensor] = {}
    plain: dict[str, Tensor] = {}
    for name, weight in weights.items():
        parts, plain[name] = rounded(weight) if name.endswith("proj.weight") else ({"weight": weight}, weight)
        kept |= {name.removesuffix("weight") + part: value for part, value in parts.items()}
    save_file(kept, few / "model.safetensors", {"format": "pt"})
    save_file(plain, whole / "model.safetensors", {"format": "pt"})
    config = json.loads((few / "config.json").read_text()) | {"quantization_config": how}
    (few / "config.json").write_text(json.dumps(config))
    return few, whole


def logits(engine: Engine) -> Tensor:
    read = engine.prefill("To be, or not to be")
    call = Decode(parents=[read], sampling=Sampling(max_tokens=2), forced=(40, 41), logits=True)
    return engine.logits(engine.decode([call])[0])


@pytest.mark.parametrize(
    ("how", "rounded", "was"),
    [
        pytest.param(
            compressed(), by_rows, "compressed-tensors, dequantised to float32 (was int-quantized)", marks=COMPRESSED
        ),
        (FP8, by_blocks, "fp8, dequantised to float32 (was 8 bits)"),
        (
            FP8 | {"activation_scheme": "static"},
            by_blocks_and_inputs,
            "fp8, dequantised to float32 (was 8 bits)",
        ),
    ],
    ids=["compressed-tensors", "fp8", "fp8 with scales of inputs"],
)
@pytest.mark.slow
def test_it_is_what_its_bits_say_multiplied_out_by_hand(
    tmp_path: Path, how: dict[str, Any], rounded: Any, was: str
) -> None:
    few, whole = pair(tmp_path, how, rounded)
    with Engine.load(few, DEVICE, "float32") as engine, Engine.load(whole, DEVICE, "float32") as plain:
        assert engine.fingerprint["stored"] == was
        assert "stored" not in plain.fingerprint
        assert float((logits(engine) - logits(plain)).abs().max()) < 1e-4
    with Engine.load(few, DEVICE, "float32", weights="int8") as lighter:
        assert lighter.fingerprint["bits"] == "int8"
    with pytest.raises(ModelError, match=f"cannot be merged into the {how['quant_method']} weights"):
        Engine.load(few, DEVICE, merge=True)


TOGETHER: list[tuple[dict[str, Any], str]] = [
    (compressed(input_activations=TOKEN | {"strategy": "tensor"}), "one scale of a tensor .input_activations, dynamic"),
    (compressed(input_activations=TOKEN | {"dynamic": False}), "one scale of a token .input_activations, static"),
    (compressed(output_activations=TOKEN | {"strategy": "tensor"}), "scale of a tensor .output_activations, dynamic"),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "leaves out columns in which any row is large"),
    ({"quant_method": "torchao", "quant_type": "float8_dynamic_activation_float8_weight"}, "not known to be token by"),
]


@pytest.mark.parametrize(("how", "cause"), TOGETHER, ids=range(len(TOGETHER)))
def test_scales_over_several_rows_are_refused_from_the_config_alone(
    tmp_path: Path, how: dict[str, Any], cause: str
) -> None:
    with pytest.raises(UnsupportedModel, match=f"{cause}.*would influence each other. Use the 16-bit version"):
        Engine.load(says(tmp_path, how))


LACKING = [
    (
        {"quant_method": "gptq", "bits": 4, "group_size": 128},
        "optimum and gptqmodel, which are not installed: pip inst",
    ),
    (
        {"quant_method": "awq", "bits": 4},
        "weights in awq: it needs gptqmodel, which is not installed: pip install gptq",
    ),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False}, "pip install bitsandbytes"),
    ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, "pip install torchao"),
]


@pytest.mark.parametrize(("how", "words"), LACKING, ids=lambda value: value if isinstance(value, str) else "")
def test_a_library_that_is_missing_is_named_before_weights_are_read(
    tmp_path: Path, how: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantized_checkpoint, "find_spec", lambda module: None)
    with pytest.raises(ModelError, match=words):
        Engine.load(says(tmp_path, how))
    with pytest.raises(ModelError, match="which cannot be quantized again; leave out weights=int8"):
        Engine.load(says(tmp_path, how), weights="int8")


def test_compressed_tensors_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcho.extras._installed", lambda module: False)
    with pytest.raises(ExtraMissing, match=r"pip install 'agentcho\[compressed-tensors\]'"):
        Engine.load(says(tmp_path, compressed()))


def test_a_method_that_nobody_has_looked_at_is_refused(tmp_path: Path) -> None:
    for how in ({"quant_method": "aqlm"}, {"bits": 3}):
        with pytest.raises(AgentchoError, match="it is not known whether rows of a batch stay independent with"):
            Engine.load(says(tmp_path, how))


def test_the_text_part_of_a_larger_model_in_few_bits_is_refused(tmp_path: Path) -> None:
    from transformers import Gemma3Config

    config = Gemma3Config(text_config={"num_hidden_layers": 2}, quantization_config=FP8)
    (tmp_path / "config.json").write_text(config.to_json_string(use_diff=False))
    with pytest.raises(
        UnsupportedModel, match="it is the text part of a larger model, whose config says for the whole"
    ):
        Engine.load(tmp_path)
