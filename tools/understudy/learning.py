"""The training method: the recipe, the model's shape, the loss and the optimizers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from .packing import Batch
from .tokens import Framer


@dataclass(frozen=True)
class Recipe:
    """Everything that a run depends on. The same recipe on the same machine gives the same model. `first` is the number
    of the first workflow that it reads."""

    seed: int = 0
    steps: int = 4000
    rows: int = 6
    length: int = 768
    rate: float = 0.012
    rate_others: float = 3e-3
    spread: float = 0.05
    floor: float = 0.03
    warmup: int = 100
    decay: float = 0.05
    clip: float = 1.0
    vocabulary: int = 3072
    hidden: int = 256
    layers: int = 6
    middle: int = 768
    heads: int = 4
    tokenizer_samples: int = 12_000
    first: int = 0


Loss = Callable[[LlamaForCausalLM, Batch], Tensor]


def build(recipe: Recipe, framer: Framer) -> LlamaForCausalLM:
    """A fresh model with tied embeddings and one key-value head for every two query heads."""
    torch.manual_seed(recipe.seed)
    config = LlamaConfig(
        vocab_size=recipe.vocabulary,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.middle,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        head_dim=recipe.hidden // recipe.heads,
        num_key_value_heads=recipe.heads // 2,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        bos_token_id=framer.begin,
        eos_token_id=framer.end,
        pad_token_id=framer.pad,
    )
    config.initializer_range = recipe.spread
    return LlamaForCausalLM(config)


def loss(model: LlamaForCausalLM, batch: Batch) -> Tensor:
    """The weighted mean of the cross-entropies. The token at i is predicted from those before it."""
    place = batch.positions.clamp(min=0)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(input_ids=batch.ids, position_ids=place, attention_mask=batch.mask, use_cache=False).logits
    each = nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), batch.ids[:, 1:].flatten(), reduction="none"
    )
    weights = batch.weights[:, 1:].flatten()
    return (each * weights).sum() / weights.sum()


def pace(recipe: Recipe, step: int) -> float:
    """The share of the full learning rate: a linear warm-up, then a cosine decay to the floor."""
    if step < recipe.warmup:
        return (step + 1) / recipe.warmup
    done = (step - recipe.warmup) / max(1, recipe.steps - recipe.warmup)
    return recipe.floor + (1 - recipe.floor) * (1 + math.cos(math.pi * done)) / 2


def optimizers(recipe: Recipe, model: LlamaForCausalLM) -> tuple[torch.optim.Optimizer, ...]:
    """Muon for the matrices of the layers, AdamW for embeddings and norms. Each has its own full learning rate."""
    named = list(model.named_parameters())
    matrices = [each for name, each in named if each.dim() == 2 and "embed" not in name]
    others = [each for name, each in named if each.dim() != 2 or "embed" in name]
    muon = torch.optim.Muon([{"params": matrices, "full": recipe.rate}], lr=recipe.rate, weight_decay=recipe.decay)
    group = {"params": others, "full": recipe.rate_others}
    adam = torch.optim.AdamW([group], lr=recipe.rate_others, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    return muon, adam
