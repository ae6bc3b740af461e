"""How an adapter is trained: everything that determines its weights except the traces. Must not import torch."""

from __future__ import annotations

import json
from math import cos, pi, sqrt
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from agentcho.config import Leakage, Mode
from agentcho.errors import ConfigError
from agentcho.records.frozen import Frozen

Share = Annotated[float, Field(ge=0, lt=1)]


class Recipe(Frozen):
    """Frozen, checked on construction. `mode` and `leakage` select the encodings that it trains on.

    `rank`, `alpha`, `dropout` define a LoRA on queries, keys, values and outputs of every attention; `peft` (the fields
    of any peft configuration) replaces them. AdamW warms up to `rate` over the first `warmup` share of the steps, then
    decays along a cosine to a tenth; each step has `batch` traces, fed in forwards of at most `tokens`, or of one
    trace. `dev` is the share of traces that is held out, at most 50 traces. A field with a description is an option of
    `agentcho tune`.
    """

    mode: Mode = Field(
        default="choreographed",
        description="Mode to train for: calls reuse encodings of messages (choreographed), or encode each prompt "
        "separately (baseline).",
    )
    leakage: Leakage = Field(default="audit", description="Leakage mode whose encodings the adapter is trained on.")
    rank: int = Field(
        default=64,
        ge=1,
        description="Rank of the LoRA update of the query, key, value and output projections.",
        json_schema_extra={"panel": "Training"},
    )
    alpha: float = Field(
        default=32, gt=0, description="Scale of the LoRA update.", json_schema_extra={"panel": "Training"}
    )
    dropout: Share = Field(
        default=0.05, description="Dropout on the adapter's input.", json_schema_extra={"panel": "More on training"}
    )
    peft: dict[str, Any] | None = None
    epochs: int = Field(
        default=4, ge=1, description="Number of passes over all traces.", json_schema_extra={"panel": "Training"}
    )
    batch: int = Field(
        default=8, ge=1, description="Number of traces per step.", json_schema_extra={"panel": "Training"}
    )
    rate: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Peak learning rate.  [default: by the model's width, 0.001 at 256]",
        json_schema_extra={"panel": "Training"},
    )
    warmup: Share = 0.1
    decay: Annotated[float, Field(ge=0)] = 0.0
    clip: Annotated[float, Field(gt=0)] = 1.0
    dev: Annotated[float, Field(gt=0, lt=1)] = 0.1
    tokens: int = Field(
        default=4096,
        ge=1,
        description="Maximum number of tokens per forward pass; a longer trace is fed alone.",
        json_schema_extra={"panel": "More on training"},
    )
    recompute: bool = Field(
        default=False,
        description="Recompute activations instead of keeping them: less memory, slower.",
        json_schema_extra={"panel": "More on training"},
    )
    seed: int = Field(default=0, description="Seed of the split, the order, the adapter's weights and dropout.")

    def adapter(self, modules: list[str]) -> dict[str, Any]:
        """The peft configuration: `modules` are the attention's linear layers."""
        if self.peft is not None:
            return self.peft
        lora = {"r": self.rank, "lora_alpha": self.alpha, "lora_dropout": self.dropout}
        return {"peft_type": "LORA", **lora, "target_modules": modules}

    def peak(self, width: int) -> float:
        """The peak learning rate; by default inversely proportional to the square root of the model's width."""
        return self.rate if self.rate is not None else 0.016 / sqrt(width)

    def pace(self, step: int, steps: int) -> float:
        """The factor of the learning rate at a step, counted from 0."""
        rising = max(1, round(self.warmup * steps))
        if step < rising:
            return (step + 1) / rising
        return 0.1 + 0.9 * (1 + cos(pi * (step - rising) / max(1, steps - rising))) / 2


def read_peft(file: Path) -> dict[str, Any]:
    """The fields of a peft configuration. `ConfigError`: the file is not one."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read as a peft configuration ({' '.join(str(error).split())})") from None
    if not isinstance(found, dict) or "peft_type" not in found:
        raise ConfigError(f"{file} is not a peft configuration: give a JSON object with a peft_type, such as LORA")
    return found
