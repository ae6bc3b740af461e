"""Checks checkpoints with quantized weights by their config: whether rows stay independent, which packages are needed,
and whether transformers dequantizes the weights.

Every checkpoint that runs has also passed the gate. Scales over all rows of a batch, which the gate's few tokens cannot
reveal, are refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from agentcho.errors import ModelError, UnsupportedModel
from agentcho.extras import require

WHOLE = "Use the 16-bit version of this model, with weights=int8 or int4 to keep it small."
COMPRESSED = "compressed-tensors"
APART = re.compile(r"weight_?only|int8_?dynamic_?activation", re.IGNORECASE)
"""torchao's names for weight-only quantization, and for scales per token."""


class QuantizationMethod(NamedTuple):
    """A quantization method: the module and package of each library that it needs, and whether transformers can
    dequantize the weights into an ordinary network."""

    libraries: Mapping[str, str]
    dequantised: bool = False


METHODS = {
    COMPRESSED: QuantizationMethod({}, True),
    "fp8": QuantizationMethod({}, True),  # scales of inputs are read and not used
    "mxfp4": QuantizationMethod({}, True),
    "gptq": QuantizationMethod({"optimum": "optimum", "gptqmodel": "gptqmodel"}),
    "awq": QuantizationMethod({"gptqmodel": "gptqmodel"}),
    "bitsandbytes": QuantizationMethod({"bitsandbytes": "bitsandbytes"}),
    "torchao": QuantizationMethod({"torchao": "torchao"}),
}
"""The methods for which it is known how they round a layer's input."""


def quantisation(config: Any) -> dict[str, Any] | None:
    """The quantization settings in a config, or None."""
    said = getattr(config, "quantization_config", None)
    if not said:
        return None
    return dict(said) if isinstance(said, Mapping) else dict(said.to_dict())


def check_quantised(name: str, config: Any, part: bool, bits: str | None, merge: bool) -> None:
    """Refuse such a checkpoint, before its weights are read, if rows would influence each other, if a library is
    missing, or if its weights do not support what was asked for. `part`: it is the text part of a larger model. Raises
    `UnsupportedModel`, `ModelError` or `ExtraMissing`."""
    said = quantisation(config)
    if said is None:
        return
    method = _method(said)
    for cause in _causes(said, method, part):
        raise UnsupportedModel(name, cause, WHOLE, what=f"{name} cannot be run as it is stored")
    if merge:
        raise ModelError(f"an adapter cannot be merged into the {method} weights of {name}; leave out merge")
    if bits is not None and not METHODS[method].dequantised:
        raise ModelError(f"{name} has weights in {method}, which cannot be quantized again; leave out weights={bits}")
    _require(name, method)


def dequantised(config: Any) -> dict[str, Any]:
    """The library's options to dequantize such weights, where possible."""
    said = quantisation(config)
    if said is None:
        return {}
    if METHODS[_method(said)].dequantised:
        config.quantization_config = said | {"dequantize": True}
    return {"config": config}


def stays_quantised(config: Any) -> bool:
    """Whether the loaded network has quantized weights."""
    said = quantisation(config)
    return said is not None and not METHODS[_method(said)].dequantised


def stored(config: Any, dtype: str) -> str | None:
    """The stored format of the weights and its conversion, in words, or None if they are not quantized."""
    said = quantisation(config)
    if said is None:
        return None
    method, bits = _method(said), said.get("bits") or (8 if said.get("load_in_8bit") else 4)
    was = {COMPRESSED: said.get("format", "in parts"), "fp8": "8 bits", "mxfp4": "4 bits"}.get(method)
    if was is not None:
        return f"{method}, dequantised to {dtype} (was {was})"
    return f"{method}, {said.get('quant_type')}" if method == "torchao" else f"{method}, {bits} bits"


def _method(said: Mapping[str, Any]) -> str:
    method = said.get("quant_method") or ("bitsandbytes" if "load_in_8bit" in said else "")
    return str(getattr(method, "value", method))


def _causes(said: Mapping[str, Any], method: str, part: bool) -> Iterator[str]:
    if method not in METHODS:
        known = ", ".join(sorted(METHODS))
        stored = method or "an unnamed format"
        yield f"it is not known whether rows of a batch stay independent with weights in {stored} (known: {known})"
        return
    if part:
        yield "it is the text part of a larger model, whose config says for the whole which weights are in few bits"
    rounded = _rounded(said, method)
    if rounded is not None:
        yield f"it rounds what layers are given {rounded}, so rows of a batch would influence each other"


def _rounded(said: Mapping[str, Any], method: str) -> str | None:
    """How a checkpoint rounds a layer's input, unless it does so token by token or not at all (None)."""
    if method == COMPRESSED:
        return next(filter(None, map(_group, (said.get("config_groups") or {}).values())), None)
    if method == "bitsandbytes" and said.get("load_in_8bit") and said.get("llm_int8_threshold", 6.0) > 0:
        return "and leaves out columns in which any row is large (llm_int8_threshold above 0)"
    if method == "torchao" and not APART.search(str(said.get("quant_type"))):
        return f"in a way that is not known to be token by token ({said.get('quant_type')})"
    return None


def _group(group: Any) -> str | None:
    for which in ("input_activations", "output_activations"):
        how = group.get(which) if isinstance(group, Mapping) else None
        if how and not (how.get("dynamic") is True and how.get("strategy") in ("token", "group")):
            dynamic = "dynamic" if how.get("dynamic") else "static"
            return f"by one scale of a {how.get('strategy') or 'tensor'} ({which}, {dynamic})"
    return None


def _require(name: str, method: str) -> None:
    if method == COMPRESSED:
        require(f"to read weights in {method}, as {name} has them", "compressed-tensors")
    lacking = [package for module, package in METHODS[method].libraries.items() if find_spec(module) is None]
    if lacking:
        needs = f"{' and '.join(lacking)}, which {'is' if len(lacking) == 1 else 'are'} not installed"
        raise ModelError(f"{name} has weights in {method}: it needs {needs}: pip install {' '.join(lacking)}")
