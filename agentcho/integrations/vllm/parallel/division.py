"""Checks whether a model can be divided as requested, before anything is loaded. Must not import vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from agentcho.errors import ModelError

TENSOR, PIPELINE = "tensor_parallel_size", "pipeline_parallel_size"
"""vLLM's names of the two sizes."""


class Division(NamedTuple):
    """The number of ranks that share the heads of each layer, and the number of stages that share the layers."""

    tensor: int = 1
    pipeline: int = 1

    @property
    def ranks(self) -> int:
        """The number of processes, each with a device of its own."""
        return self.tensor * self.pipeline

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Division:
        """The division requested in these options of vLLM. `ModelError`: a size is not a positive whole number."""
        for name in (TENSOR, PIPELINE):
            given = options.get(name, 1)
            if not isinstance(given, int) or isinstance(given, bool) or given < 1:
                raise ModelError(f"{name} {given!r}: give a whole number, 1 or more")
        return cls(options.get(TENSOR, 1), options.get(PIPELINE, 1))

    def check(self, name: str, config: Any, devices: int | None) -> None:
        """`ModelError`: a model cannot be divided like this.

        Args:
            name: The name of the model in errors.
            config: Its configuration, as transformers reads it.
            devices: The number of GPUs of this machine. None: it computes on CPUs.
        """
        if self.ranks == 1:
            return
        if devices is not None and self.ranks > devices:
            raise ModelError(
                f"{TENSOR} {self.tensor} and {PIPELINE} {self.pipeline} need {self.ranks} GPUs, but this "
                f"machine has {devices}; lower them (all ranks must be on one machine)"
            )
        text = config.get_text_config()
        heads = text.num_attention_heads
        shared = getattr(text, "num_key_value_heads", None) or heads
        if heads % self.tensor or (shared % self.tensor and self.tensor % shared):
            raise ModelError(
                f"{TENSOR} {self.tensor}: {name} has {heads} attention heads and {shared} key-value heads, which "
                f"cannot be divided evenly among {self.tensor} ranks; give a number that divides both, or a multiple "
                "of the second that divides the first"
            )
        if self.pipeline > text.num_hidden_layers:
            raise ModelError(
                f"{PIPELINE} {self.pipeline}: {name} has {text.num_hidden_layers} layers; give at most as "
                "many stages as layers"
            )
