"""Mixes LoRA adapters: in one forward each token goes through the adapter of its own call, or through the base.

peft loads and checks adapters; its layers compute only the base, and each adapter's contribution is added here, to its
own tokens. Other variants of peft are not supported, and need engines of their own. Independent of calls, attention and
batch layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from agentcho.errors import AdapterError

OF_ITS_OWN = "give it an engine of its own (Engine.load(adapter=FOLDER))"
PLAIN_STARTS = (True, False, "gaussian")
"""The initializations that leave the base's own weights unchanged."""
UNLIKE = {
    "use_dora": "DoRA",
    "use_qalora": "QALoRA",
    "alora_invocation_tokens": "an adapter that is on after certain tokens alone",
    "arrow_config": "Arrow",
    "velora_config": "VeLoRA",
    "kasa_config": "KaSA",
    "monteclora_config": "MonteCLoRA",
    "use_bdlora": "BD-LoRA",
    "modules_to_save": "layers that are trained as a whole",
    "trainable_token_indices": "embeddings of tokens",
    "target_parameters": "parameters that are no linear layer's weight",
    "layer_replication": "layers that are there twice",
    "megatron_config": "layers of Megatron",
}
"""Fields of a peft configuration that make it more than plain LoRA, and what they add."""


class AdapterTokens(NamedTuple):
    """The tokens of a forward that go through one adapter: their indices `[n]`, and the indices `[m]` of their rows
    among the wanted rows of logits. None for all of them."""

    adapter: str
    tokens: Tensor | None
    wanted: Tensor | None


def check_plain(config: Any, path: Path) -> None:
    """Raise `AdapterError` if this peft configuration is not plain LoRA, so that it cannot be mixed with others."""
    if (why := unsupported_lora(config)) is not None:
        raise AdapterError(path, f"{why}, so it cannot be mixed with other adapters in one forward; {OF_ITS_OWN}")


def unsupported_lora(config: Any) -> str | None:
    """What makes a peft configuration more than plain LoRA on linear layers, in words, or None."""
    kind = str(getattr(config.peft_type, "value", config.peft_type))
    if kind != "LORA":
        return f"it is {kind}"
    if config.bias != "none":
        return f"it changes biases (bias={config.bias})"
    if config.init_lora_weights not in PLAIN_STARTS:
        return f"it begins by changing the base's own weights (init_lora_weights={config.init_lora_weights})"
    found = next((said for field, said in UNLIKE.items() if getattr(config, field, None)), None)
    return None if found is None else f"it has {found}"


def is_not_tokenwise(name: str) -> bool:
    """Whether a layer or weight of this name does not see each token of a forward in order, by itself."""
    parts = name.split(".")
    kinds = ("lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector", "base_layer", "modules_to_save")
    return any(part in kinds or part.startswith("expert") for part in parts)


class MixedLora:
    """The plain LoRA adapters on a network that one forward may combine."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._hooked = set[nn.Module]()
        self._shares: Sequence[AdapterTokens] = ()
        self._counts = (0, 0)

    def admit(self, adapter: str, path: Path) -> None:
        """Register a plain LoRA adapter that peft has loaded. Raises `AdapterError` if part of it is not on linear
        layers that see each token of a forward in order."""
        layers = [(name, each) for name, each in self._network.named_modules() if adapter in _matrices(each)]
        for name, layer in layers:
            if adapter in layer.lora_variant or not isinstance(layer.get_base_layer(), nn.Linear):
                raise AdapterError(path, f"{name} is not a plain linear layer, so it cannot mix adapters; {OF_ITS_OWN}")
            if is_not_tokenwise(name):
                raise AdapterError(
                    path, f"{name} sees only the tokens of its expert, so it cannot mix adapters; {OF_ITS_OWN}"
                )
        if not layers:
            raise AdapterError(path, f"it changes no linear layer of this model; {OF_ITS_OWN}")
        for _, layer in layers:
            if layer not in self._hooked:
                layer.register_forward_hook(self._add)
                self._hooked.add(layer)

    @contextmanager
    def through(self, shares: Sequence[AdapterTokens], tokens: int, wanted: int) -> Iterator[None]:
        """Within the `with` block, forwards of `tokens` tokens and `wanted` rows of logits are divided into these
        shares. peft's own adapters must be off."""
        self._shares, self._counts = shares, (tokens, wanted)
        try:
            yield
        finally:
            self._shares = ()

    def _add(self, layer: Any, given: tuple[Tensor, ...], out: Tensor) -> Tensor | None:
        """Add to the output of the base's layer the contribution of each adapter to its own tokens."""
        if not self._shares:
            return None
        head = layer is self._network.get_output_embeddings()  # type: ignore[operator]
        rows, flat = given[0].reshape(-1, given[0].shape[-1]), out.reshape(-1, out.shape[-1])
        assert len(rows) == self._counts[head], "a layer does not see each token once"
        for adapter, tokens, wanted in self._shares:
            if adapter in layer.lora_A:
                places = wanted if head else tokens
                if places is None:
                    flat = _added(layer, adapter, rows, flat)
                elif len(places):
                    places = places.to(flat.device)
                    flat.index_copy_(0, places, _added(layer, adapter, rows[places], flat[places]))
        return flat.reshape(out.shape)


def _added(layer: Any, adapter: str, rows: Tensor, out: Tensor) -> Tensor:
    """As peft adds it: in the adapter's dtype, and then in that of the base."""
    down, up = layer.lora_A[adapter], layer.lora_B[adapter]
    more: Tensor = up(down(rows.to(down.weight.dtype))) * layer.scaling[adapter]
    return (out + more).to(out.dtype)


def _matrices(layer: Any) -> Sequence[str]:
    """The adapters that a layer has, of whatever kind."""
    found = (getattr(layer, name, None) or () for name in ("lora_A", "lora_embedding_A", "lora_magnitude_vector"))
    return [name for each in found for name in each]


def nan_hooks(network: nn.Module, adapter: str) -> list[Any]:
    """Hooks that make every layer of an adapter return NaN; to be removed by the caller. What is not NaN after a
    forward does not depend on any of them."""

    def spoil(layer: Any, given: Any, out: Tensor) -> Tensor:
        return torch.full_like(out, torch.nan)

    return [each.register_forward_hook(spoil) for each in network.modules() if adapter in _matrices(each)]
