"""peft's adapters on one network. Each is loaded once; at most one is in use. This is the only module that imports
peft."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from agentcho.engine.lora_adapter import WEIGHTS, Adapter
from agentcho.errors import AdapterError, ConfigError
from agentcho.extras import require
from agentcho.runner.model.mixed_lora import PLAIN_STARTS, MixedLora, check_plain, is_not_tokenwise, unsupported_lora

TRAINING = "in_training"
PREFIX = "base_model.model."
LAYERS = f"{PREFIX}model.layers."
"""The beginning of the names of an adapter's weights in the layers of a text model. Those of a larger model's other
parts, which read images or sounds, have other names."""


def _peft() -> Any:
    require("to use adapters", "tune")
    with _quiet():
        import peft

    return peft


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide a warning of peft about a deprecation in another library, which users can do nothing about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


class Adapters:
    """The adapters on a network. `used`: the name of the one that its next forward goes through, or None. `mixed`:
    those that one forward may combine. `loaded`: layers of the network are wrapped by peft, whether an adapter is in
    use or not. `renamed`: for the text part of a larger model, patterns of its weights' names in the whole model, and
    what replaces them; None for other models."""

    def __init__(self, network: nn.Module, renamed: Mapping[str, str] | None = None) -> None:
        self._network, self.mixed, self._renamed = network, MixedLora(network), renamed
        self._layers = frozenset(name for name, module in network.named_modules() if not list(module.children()))
        self._wrapped: Any = None
        self.used: str | None = None
        self.loaded = False

    def load(self, adapter: Adapter) -> None:
        """Read the weights of an adapter, which is named by its digest. Raises `AdapterError` if they do not fit the
        network."""
        peft = _peft()
        if self._wrapped is not None and adapter.digest in self._wrapped.peft_config:
            return
        try:
            config = peft.PeftConfig.from_pretrained(str(adapter.path))
            self._check(config, adapter.path)
            self._rename(config, adapter)
            with _quiet():
                if self._wrapped is None:
                    self._wrap(peft.PeftModel(self._network, config, adapter.digest))
                else:
                    self._wrapped.add_adapter(adapter.digest, config)
                loaded = self._wrapped.load_adapter(
                    str(adapter.path), adapter.digest, is_trainable=False, key_mapping=self._renamed
                )
        except (ValueError, RuntimeError, OSError, KeyError, TypeError, SafetensorError) as error:
            raise AdapterError(adapter.path, f"it does not fit this model ({_line(error)})") from error
        added = [key for key in loaded.unexpected_keys if self._renamed is None or key.startswith(LAYERS)]
        if lacking := [*added, *(key for key in loaded.missing_keys if adapter.digest in key)]:
            raise AdapterError(adapter.path, f"it does not fit this model (its weights lack or add {lacking[0]})")
        self._network.train(False)
        self.used = adapter.digest
        self.use(None)

    def _rename(self, config: Any, adapter: Adapter) -> None:
        """Let the configuration of an adapter that was trained on the larger model name the modules of this part: those
        that it has weights for, because its own names may be patterns that only the larger model's names match."""
        with safe_open(str(adapter.path / WEIGHTS), "pt") as weights:
            names = [name.removeprefix(PREFIX) for name in weights.keys()]  # noqa: SIM118
        here = [self._own_name(name) for name in names]
        if here == names:
            return
        config.target_modules = [*dict.fromkeys(filter(None, map(self._adapted_module, here)))]
        for patterns in ("rank_pattern", "alpha_pattern"):
            own = {self._own_name(name): value for name, value in (getattr(config, patterns, None) or {}).items()}
            if unknown := [name for name in own if "language_model" in name]:
                raise ValueError(f"{patterns} names {unknown[0]}, a module of the larger model that it was trained on")
            setattr(config, patterns, own)

    def _own_name(self, name: str) -> str:
        """The name of a weight or module in this network, given its name in the larger model."""
        for pattern, replacement in (self._renamed or {}).items():
            name = re.sub(pattern, replacement, name)
        return name

    def _adapted_module(self, name: str) -> str | None:
        """The module that a weight of an adapter changes. None if it is a whole weight, or another part's."""
        module = name
        while module and module not in self._layers:
            module = module.rpartition(".")[0]
        return None if not module or name[len(module) + 1 :] in ("weight", "bias") else module

    @staticmethod
    def _check(config: Any, path: Path) -> None:
        if config.is_prompt_learning:
            raise AdapterError(path, "it inserts tokens before the prompt, which shared encodings do not have")

    def mix(self, adapter: Adapter) -> None:
        """Load an adapter so that forwards may combine it with others. Raises `AdapterError` if it is not plain
        LoRA."""
        check_plain(_read_config(adapter), adapter.path)  # first: loading other kinds may change the base's weights
        self.load(adapter)
        self.mixed.admit(adapter.digest, adapter.path)

    def use(self, name: str | None) -> None:
        """Let forwards go through this adapter, or (None) through the base only."""
        if name is None:
            self._wrapped.base_model.disable_adapter_layers()
        else:
            self._wrapped.base_model.enable_adapter_layers()
            self._wrapped.set_adapter(name)
        self.used = name

    def drop(self, name: str) -> None:
        """Remove an adapter that was loaded; forwards go through the base until one is used again."""
        others = self._wrapped.peft_config.keys() - {name}
        if others:
            self._wrapped.set_adapter(min(others))  # peft warns if it must choose one itself
        self._wrapped.delete_adapter(name)
        self.use(None)

    def merge(self, name: str) -> None:
        """Merge an adapter into the weights of the base, permanently."""
        self.use(name)
        self._wrapped.merge_and_unload()
        self._wrap(None)
        self.used = None

    def _wrap(self, wrapped: Any) -> None:
        self._wrapped, self.loaded = wrapped, wrapped is not None

    # -- training ----------------------------------------------------------------------------------------

    def begin(self, config: Mapping[str, Any]) -> None:
        """Put a new adapter on the network, made from the fields of a peft configuration; only its weights are trained.
        Raises `ConfigError` if the fields are invalid, or do not fit this network."""
        peft = _peft()
        try:
            made = peft.get_peft_config({"task_type": "CAUSAL_LM", **config})
            if made.is_prompt_learning or getattr(made, "init_lora_weights", True) not in PLAIN_STARTS:
                raise ValueError("it changes the prompt, or the weights of the base model")
            with _quiet():
                self._put(peft, made)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"the peft configuration cannot be used here: {_line(error)}") from error
        self.used = TRAINING

    def _put(self, peft: Any, config: Any) -> None:
        """Add the adapter to be trained, in place of an earlier one."""
        if self._wrapped is None:
            self._wrap(peft.PeftModel(self._network, config, TRAINING))
        else:
            if TRAINING in self._wrapped.peft_config:
                for other in self._wrapped.peft_config.keys() - {TRAINING}:
                    self._wrapped.set_adapter(other)  # peft warns if it must choose one itself
                self._wrapped.delete_adapter(TRAINING)
            self._wrapped.add_adapter(TRAINING, config)
        self._wrapped.base_model.enable_adapter_layers()
        self._wrapped.set_adapter(TRAINING)

    def state(self) -> dict[str, Tensor]:
        """The trained weights, on the CPU."""
        found: dict[str, Tensor] = _peft().get_peft_model_state_dict(self._wrapped, adapter_name=TRAINING)
        return {name: each.detach().cpu().clone() for name, each in found.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Set the trained weights."""
        _peft().set_peft_model_state_dict(self._wrapped, dict(state), adapter_name=TRAINING)

    def config(self) -> dict[str, Any]:
        """The configuration of the trained adapter, in the form of `adapter_config.json`."""
        found: dict[str, Any] = self._wrapped.peft_config[TRAINING].to_dict()
        return {name: _plain(value) for name, value in found.items()} | {"inference_mode": True}


def is_plain(adapter: Adapter) -> bool:
    """Whether forwards may combine an adapter with others, judging by its files only: `Adapters.mix` checks the model
    too. Raises `AdapterError` if they cannot be read."""
    with _reading(adapter), safe_open(str(adapter.path / WEIGHTS), "pt") as weights:
        names = list(weights.keys())
    return unsupported_lora(_read_config(adapter)) is None and not any(is_not_tokenwise(name) for name in names)


def _read_config(adapter: Adapter) -> Any:
    with _reading(adapter):
        return _peft().PeftConfig.from_pretrained(str(adapter.path))


@contextmanager
def _reading(adapter: Adapter) -> Iterator[None]:
    """Raise `AdapterError` for files that are not an adapter's."""
    try:
        yield
    except (ValueError, OSError, KeyError, TypeError, SafetensorError) as error:
        raise AdapterError(adapter.path, f"it cannot be read ({_line(error)})") from error


def attention_linears(network: nn.Module) -> list[str]:
    """The names of the linear layers in the attention of a network: q, k, v and o, or what its family calls them."""
    found: dict[str, None] = {}
    for module in network.modules():
        if hasattr(module, "layer_idx") and type(module).__name__.endswith("Attention"):
            found |= {name: None for name, child in module.named_children() if _linear(child)}
    return list(found)


def _linear(module: nn.Module) -> bool:
    """Whether it is a linear layer, with or without adapters."""
    return isinstance(getattr(module, "base_layer", module), nn.Linear)


def _plain(value: Any) -> Any:
    """A value in JSON form."""
    if isinstance(value, set | frozenset):
        return sorted(value)
    return getattr(value, "value", value)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
