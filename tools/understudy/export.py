"""Writes a model and its tokenizer as a folder that transformers can load. The tokenizer's configuration records that
messages were tokenised separately in training.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from agentcho.engine.chat_renderer import APART

from .tokens import BEGIN, CHAT_TEMPLATE, END, MESSAGE, PAD, START


def export(model: LlamaForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    """Write config.json, generation_config.json, model.safetensors (bfloat16) and the tokenizer's two files."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: each.detach().to(torch.bfloat16).contiguous() for name, each in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    fresh = folder / "model.safetensors.new"
    save_file(state, str(fresh), metadata={"format": "pt"})
    fresh.replace(folder / "model.safetensors")
    (folder / "model.safetensors").chmod(0o644)
    config = model.config.to_dict() | {"architectures": ["LlamaForCausalLM"], "dtype": "bfloat16"}
    type(model.config)(**config).to_json_file(folder / "config.json")
    generation(model).save_pretrained(folder)
    wrap(tokenizer).save_pretrained(folder, save_jinja_files=False)
    settings = folder / "tokenizer_config.json"
    plain = json.loads(settings.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast", APART: "apart"}
    settings.write_text(json.dumps(plain, indent=2) + "\n")


def generation(model: LlamaForCausalLM) -> GenerationConfig:
    """The recommended sampling parameters of the model."""
    config = model.config
    return GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
        do_sample=True,
        temperature=0.7,
        max_new_tokens=96,
    )


def wrap(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """The tokenizer with its special tokens and its chat template."""
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        bos_token=BEGIN,
        eos_token=END,
        pad_token=PAD,
        chat_template=CHAT_TEMPLATE,
        additional_special_tokens=[START, MESSAGE],
        clean_up_tokenization_spaces=False,
        model_max_length=8192,
    )
