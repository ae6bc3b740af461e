"""Which models engine vllm serves, judged from stand-ins for vLLM's layers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from agentcho.errors import UnsupportedModel
from agentcho.integrations.vllm.gate import check_turning, served_layers
from agentcho.runner.kv.rope import Rotation

from .test_vllm_engine import BLOCK, DIM, Packed, empty

FREQUENCIES = 10000.0 ** -(torch.arange(0, DIM, 2).double() / DIM)


class Rotary(nn.Module):
    """vLLM's rotary embedding module, with the table by which it rotates keys."""

    def __init__(
        self, base: float = 10000.0, scale: float = 1.0, neox: bool = True, table: Tensor | None = None
    ) -> None:
        super().__init__()
        self.base, self.is_neox_style = base, neox
        angles = torch.arange(600).double().unsqueeze(1) * FREQUENCIES
        made = torch.cat([angles.cos(), angles.sin()], 1).float() * scale
        self.cos_sin_cache = made if table is None else table

    def _compute_inv_freq(self, base: float) -> Tensor:
        return (base ** -(torch.arange(0, DIM, 2).double() / DIM)).float()


def network(*rotary: nn.Module) -> nn.Module:
    """A module whose layers have these rotary embeddings, under vLLM's names."""
    whole = nn.Module()
    whole.layers = nn.ModuleList()
    for each in rotary:
        layer = nn.Module()
        layer.self_attn = nn.Module()
        layer.self_attn.rotary_emb = each
        whole.layers.append(layer)
    return whole


def layers(count: int, **more: Any) -> dict[str, Any]:
    """Attention layers by name."""
    shape = {"impl": Packed(), "num_kv_heads": 1, "head_size": DIM}
    return {f"layers.{nth}.self_attn.attn": SimpleNamespace(**shape | more) for nth in range(count)}


def served(net: nn.Module, attention: dict[str, Any], cache: Tensor | None = None) -> list[Rotation]:
    caches = {name: empty() if cache is None else cache for name in attention}
    found = served_layers("tiny", net, attention, caches, BLOCK)
    return [layer.rotation for layer in found]


def test_layers_that_share_a_rotary_module_share_a_rotation_and_others_have_their_own() -> None:
    shared, other = Rotary(), Rotary(neox=False)
    one, two, three = served(network(shared, shared, other), layers(3))
    assert one is two
    assert (one.form, three.form) == ("half", "interleaved")
    assert one.frequencies is not None
    assert torch.allclose(one.frequencies, FREQUENCIES, atol=1e-6)


def test_a_factor_that_all_positions_have_in_common_is_no_rotation() -> None:
    [rotation] = served(network(Rotary(scale=1.3)), layers(1))
    assert rotation.form == "half"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"sliding_window": 128}, "has a sliding window of 128 tokens"),
        ({"use_mla": True}, "keeps latent vectors instead of keys"),
        ({"head_size_v": 2 * DIM}, "keeps latent vectors instead of keys"),
        ({"kv_cache_dtype": "fp8_e4m3"}, "are quantised"),
    ],
)
def test_a_layer_whose_keys_cannot_be_moved_is_named(more: dict[str, Any], told: str) -> None:
    with pytest.raises(
        UnsupportedModel, match=rf"its layer layers\.0\.self_attn\.attn .*{told}|the keys of its .*{told}"
    ):
        served(network(Rotary()), layers(1, **more))


def test_positions_of_a_kind_that_is_not_known_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="has no known rotary positions"):
        served(network(), layers(1))
    with pytest.raises(UnsupportedModel, match=r"rotary positions are of an unknown kind \(Rotary\)"):
        served(network(Rotary(base=500000.0)), layers(1))
    several = Rotary()
    several.mrope_section = torch.tensor([2, 1, 1])
    with pytest.raises(UnsupportedModel, match="several dimensions"):
        served(network(several), layers(1))
    with pytest.raises(UnsupportedModel, match="vLLM keeps no keys and values for it"):
        served(network(Rotary()), {})


def test_keys_that_are_measured_to_turn_otherwise_are_refused() -> None:
    check_turning("tiny", [0.0, 5e-4], torch.float32)
    check_turning("tiny", [2e-2], torch.bfloat16)
    with pytest.raises(
        UnsupportedModel, match=r"keys of its layer 1 do not rotate .* \(error: 0\.02 of the largest key\)"
    ):
        check_turning("tiny", [0.0, 2e-2], torch.float32)
    with pytest.raises(UnsupportedModel, match="layer 0"):
        check_turning("tiny", [float("nan")], torch.float32)
