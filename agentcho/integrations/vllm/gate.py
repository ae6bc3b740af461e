"""Decides whether encodings of a model can be given to vLLM, from the layers of the loaded model.

An encoding can be read at another position if its keys depend on position by one known rotation, and if every query
sees all keys before it. Other models are refused, with the reason. Independent of messages and calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from agentcho.errors import UnsupportedModel
from agentcho.integrations.vllm.kv_layout import BlockLayout
from agentcho.runner.kv.kv_pool import LayerShape
from agentcho.runner.kv.rope import Rotation

INSTEAD = "Use agentcho's own engine: leave --engine out"
POSITIONS = (1, 2, 7, 61, 500)
CLOSE = 2e-3
"""Tolerance for cosines and sines: vLLM computes its tables in float32, and may keep them in bfloat16."""


TURNED = 1e-3
"""Tolerance for float32 keys, as a share of the largest key."""


class FoundLayer(NamedTuple):
    """Description of one attention layer, in numbers and names alone.

    Attributes:
        name: vLLM's name of the layer.
        heads: The number of its key-value heads.
        dim: The dimension of a head.
        dtype: The dtype of its keys and values.
        device: The device type of its cache.
        backend: vLLM's attention backend.
        form: The form of its rotation.
    """

    name: str
    heads: int
    dim: int
    dtype: torch.dtype
    device: str
    backend: str
    form: str


class ServedLayer(NamedTuple):
    """One attention layer: the blocks of its cache, its shape, and the rotation of its keys."""

    layout: BlockLayout
    shape: LayerShape
    rotation: Rotation

    def told(self, name: str) -> FoundLayer:
        """The description of the layer, which has this name."""
        return FoundLayer(
            name,
            heads=self.shape.heads,
            dim=self.shape.key_dim,
            dtype=self.layout.cache.dtype,
            device=self.layout.cache.device.type,
            backend=type(self.layout.backend).__name__,
            form=self.rotation.form,
        )


def served_layers(
    name: str, network: Any, layers: dict[str, Any], caches: dict[str, Tensor], block: int
) -> list[ServedLayer]:
    """The attention layers of a model that vLLM has loaded, in order. `UnsupportedModel`: one of them cannot be served.

    Args:
        name: The name of the model in errors.
        network: The model's module in vLLM.
        layers: vLLM's attention layers by name.
        caches: Their caches by name.
        block: The number of slots in a block.
    """
    modules = dict(network.named_modules(remove_duplicate=False))  # layers may share one rotary module
    known = dict[int, Rotation]()
    found = list[ServedLayer]()
    for each, cache in caches.items():
        layer = layers[each]
        for cause in _causes(each, layer, cache):
            raise UnsupportedModel(name, cause, INSTEAD)
        rotary = modules.get(f"{each.rpartition('.')[0]}.rotary_emb")
        if rotary is None:
            raise UnsupportedModel(name, f"its layer {each} has no known rotary positions", INSTEAD)
        if id(rotary) not in known:
            known[id(rotary)] = _rotation(name, rotary)
        layout = BlockLayout(name, layer, cache, block)
        shape = LayerShape(layout.heads, layout.dim, layout.dim, cache.device)
        found.append(ServedLayer(layout, shape, known[id(rotary)]))
    if not found:
        raise UnsupportedModel(name, "vLLM keeps no keys and values for it", INSTEAD)
    return found


def _causes(name: str, layer: Any, cache: Tensor) -> Iterator[str]:
    if getattr(layer, "sliding_window", None) is not None:
        yield (
            f"its layer {name} has a sliding window of {layer.sliding_window} tokens, and vLLM discards "
            "what lies before the window"
        )
    if getattr(layer, "use_mla", False) or getattr(layer, "head_size_v", layer.head_size) != layer.head_size:
        yield f"its layer {name} keeps latent vectors instead of keys (MLA)"
    if str(getattr(layer, "kv_cache_dtype", "auto")).startswith("fp8") or cache.dtype in (torch.int8, torch.uint8):
        yield f"the keys of its layer {name} are quantised, and would be rounded again on every move"


def _rotation(name: str, rotary: Any) -> Rotation:
    """The rotation that a rotary module of vLLM applies to keys, checked against the module's own table."""
    kind = type(rotary).__name__
    if getattr(rotary, "mrope_section", None) is not None:
        raise UnsupportedModel(name, "its positions have several dimensions (mrope)", INSTEAD)
    table = getattr(rotary, "cos_sin_cache", None)
    for frequencies in _candidates(rotary):
        if table is not None and _explains(frequencies, table):
            return Rotation("half" if rotary.is_neox_style else "interleaved", frequencies.double().cpu())
    raise UnsupportedModel(name, f"its rotary positions are of an unknown kind ({kind})", INSTEAD)


def _candidates(rotary: Any) -> Iterator[Tensor]:
    compute = getattr(rotary, "_compute_inv_freq", None)
    for argument in (getattr(rotary, "base", None), getattr(rotary, "scaling_factor", None)):
        if compute is not None and argument is not None:
            yield compute(argument)


def _explains(frequencies: Tensor, table: Tensor) -> bool:
    """Whether the cosines and sines `[positions, 2n]` of a table are those of these n angles per position, up to a
    factor that all positions share."""
    count = len(frequencies)
    if table.ndim != 2 or table.shape[1] != 2 * count:
        return False
    scale = float(table[0, :count].float().mean())
    at = [position for position in POSITIONS if position < len(table)]
    angles = torch.tensor(at, dtype=torch.double).unsqueeze(1) * frequencies.double().cpu()
    wanted = torch.cat([angles.cos(), angles.sin()], 1) * scale
    return bool(scale > 0 and (table[at].double().cpu() - wanted).abs().max() <= CLOSE * scale)


def check_turning(name: str, errors: Sequence[float], dtype: torch.dtype) -> None:
    """Refuse a model whose measured keys do not rotate as its rotary tables say. `UnsupportedModel`.

    Args:
        name: The name of the model in errors.
        errors: The largest error of each layer, as a share of its largest key: see `VllmRunner.turn_errors`.
        dtype: The dtype of the keys.
    """
    tolerance = max(TURNED, 8 * torch.finfo(dtype).eps)
    worst = max(range(len(errors)), key=lambda layer: errors[layer])
    if not errors[worst] <= tolerance:
        cause = f"the keys of its layer {worst} do not rotate with their position as its rotary table states"
        raise UnsupportedModel(name, f"{cause} (error: {errors[worst]:.2g} of the largest key)", INSTEAD)
