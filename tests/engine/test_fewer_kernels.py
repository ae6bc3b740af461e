"""Modules computed by one fused kernel each match the modules of transformers, give the same bits among any other
tokens, and are not used where they do not. Triton's interpreter runs the kernels; with AGENTCHO_TEST_DEVICE=cuda they
are compiled and run there."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from agentcho import Engine, Prefill
from agentcho.protocol.call import Decode
from agentcho.runner import doctor
from agentcho.runner.model import fused
from agentcho.runner.model import model as models
from agentcho.runner.model.fused import BOUNDS, FusedPart, fuse, gate, turn, use_fused
from agentcho.runner.model.lean_transformers import AttentionInterface
from agentcho.runner.model.loading import _Alone as Alone
from agentcho.runner.model.model import ATTENTION, Model, ModelSource

from ..device import PLACE
from ..engines import Engines
from .compiled import printed
from .families import Family, cell, families, llama_family

pytest.importorskip("triton", reason="Triton is not installed: pip install triton, on Linux")

from transformers.models.llama import modeling_llama as llama_code

LAYERS = 4
ALL = {"RMSNorm": 2 * LAYERS + 1, "rotary embedding": LAYERS, "SwiGLU": LAYERS}
WHOLE = {
    "llama": ALL,
    "qwen2": ALL,
    "qwen3": ALL | {"RMSNorm": 4 * LAYERS + 1},
    "mistral": ALL,
    "gemma2": ALL | {"RMSNorm": 0, "SwiGLU": 0},  # its norms add one to their weights, and its MLP has another gate
    "gpt_neox": {"RMSNorm": 0, "rotary embedding": 0, "SwiGLU": 0},
}
"""The number of modules in each family that one kernel computes."""
KINDS = [cell(each, quick=each.name in ("llama", "qwen3")) for each in families() if each.name in WHOLE]


def model_of(family: Family) -> Model:
    """A family's network as loaded, without an engine."""
    AttentionInterface.register(ATTENTION, models._answer)
    network: Any = family.build()
    network.to(PLACE)
    network.set_attn_implementation(ATTENTION)
    return Model(ModelSource(family.name, "", network.config), network, None)


@pytest.fixture
def model() -> Model:
    """A small llama."""
    return model_of(llama_family())


def logits(model: Model) -> Tensor:
    """The logits of a forward over eleven tokens."""
    ids = torch.arange(20, 31, device=PLACE)[None]
    return model.forward(ids, ids - 13, torch.arange(11, device=PLACE), Alone())


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_says_what_it_said(kind: Family) -> None:
    model = model_of(kind)
    before, model.fused = logits(model), fuse(model.network)
    assert {part.name: part.modules for part in model.fused} == WHOLE[kind.name]
    assert [part.why is None for part in model.fused] == [part.modules > 0 for part in model.fused]
    assert torch.allclose(logits(model), before, atol=2e-5)


@pytest.mark.slow
def test_an_engine_says_what_it_said(engines: Engines) -> None:
    """For messages at other positions than they were encoded at."""
    engine, found = engines.own(), list[list[Tensor]]()
    for salt in ("stock", "fused"):
        told = list(engine.prefill([Prefill("the quick brown fox", salt=salt), Prefill("and its dream", salt=salt)]))
        (id,) = engine.decode([Decode("so", [told[1], told[0]], [60, 5], forced=(40, 41, 42), logits=True)])
        keys = [key for each in (*told, id) for pair in engine.cached(each) for key in pair]
        found.append([engine.logits(id), *keys])
        engine._model.fused = engine._model.fused or fuse(engine.network)
    for stock, other in zip(*found, strict=True):
        assert torch.allclose(stock, other, atol=2e-5)


def test_the_kernels_are_what_computes_it(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    model.fused = fuse(model.network)
    ran, launch = list[str](), fused._launch

    def spied(kernel: Any, *given: Any) -> None:
        ran.append(kernel.fn.__name__)
        launch(kernel, *given)

    monkeypatch.setattr(fused, "_launch", spied)
    logits(model)
    assert ran == ["turn", "gate"] * LAYERS
    with model.stock() as network:
        network(input_ids=torch.arange(9, device=PLACE)[None], use_cache=False)
    assert len(ran) == 2 * LAYERS, "the stock forward is as it was"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_at_the_sizes_of_llama_8b_each_is_within_its_bound(dtype: torch.dtype) -> None:
    """A number that is rounded at most three times is off by at most 1.5 times its last bit. The interpreter truncates
    to bfloat16 instead of rounding."""
    cuts = dtype == torch.bfloat16 and PLACE.type == "cpu"
    dice, most = torch.Generator().manual_seed(0), 1.5 * torch.finfo(dtype).eps + 1e-6
    assert most <= BOUNDS[dtype]

    def drawn(*shape: int) -> Tensor:
        return (3 * torch.randn(shape, generator=dice)).to(PLACE, dtype)

    with torch.inference_mode():
        norm = llama_code.LlamaRMSNorm(4096).to(PLACE, dtype)
        norm.weight.copy_(drawn(4096))
        given = drawn(1, 3, 4096)
        close(fused._normed(norm, given), norm(given), most)
        most *= 2 if cuts else 1
        gates, values = drawn(1, 2, 14336), drawn(1, 2, 14336)
        close(gate(gates, values), nn.functional.silu(gates) * values, most)
        angles = torch.rand(1, 3, 64, generator=dice).repeat(1, 1, 2) * 7
        cos, sin = (wave.to(PLACE, dtype) for wave in (angles.cos(), angles.sin()))
        queries, keys = (drawn(1, 3, heads, 128).transpose(1, 2) for heads in (32, 8))
        expected = llama_code.apply_rotary_pos_emb(queries, keys, cos, sin)
        for one, other, asked in zip(turn(none, queries, keys, cos, sin), expected, (queries, keys), strict=True):
            long = asked.float().reshape(*asked.shape[:3], 2, 64).norm(dim=3).repeat(1, 1, 1, 2)
            assert bool(((one.float() - other.float()).abs() <= most * long).all())
            assert one.stride() == asked.stride(), "what follows reads it as it reads the stock one"


def close(found: Tensor, expected: Tensor, most: float) -> None:
    """Check that each number is within a relative error of `most`."""
    assert bool(((found.float() - expected.float()).abs() <= most * expected.float().abs() + 1e-6).all())


def none(*_: object) -> Any:
    raise AssertionError("the stock function is not to be called")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [7, pytest.param(64, marks=pytest.mark.slow)])
def test_a_token_has_the_same_bits_among_any_others(count: int, dtype: torch.dtype) -> None:
    dice = torch.Generator().manual_seed(count)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=dice).to(PLACE, dtype)

    gates, values = drawn(1, count, 176), drawn(1, count, 176)
    queries, keys = drawn(1, count, 6, 24).transpose(1, 2), drawn(1, count, 2, 24).transpose(1, 2)
    cos, sin = drawn(1, count, 24), drawn(1, count, 24)
    gates[0, 0] = keys[0, :, 0] = torch.nan
    opened, turned = gate(gates, values), turn(none, queries, keys, cos, sin)
    for at in {1, count // 2, count - 1}:
        one = slice(at, at + 1)
        assert torch.equal(gate(gates[:, one], values[:, one]), opened[:, one])
        alone = turn(none, queries[:, :, one], keys[:, :, one], cos[:, one], sin[:, one])
        assert all(torch.equal(a, b[:, :, one]) for a, b in zip(alone, turned, strict=True))


def test_what_has_another_form_goes_by_the_stock_function() -> None:
    """Two sequences at once, and another dtype."""
    queries, keys = torch.randn(2, 4, 5, 8, device=PLACE), torch.randn(2, 2, 5, 8, device=PLACE)
    cos, sin = torch.randn(1, 5, 8, device=PLACE), torch.randn(1, 5, 8, device=PLACE)
    for given in ((queries, keys, cos, sin), (queries[:1].double(), keys[:1].double(), cos, sin)):
        found = turn(llama_code.apply_rotary_pos_emb, *given)
        expected = llama_code.apply_rotary_pos_emb(*given)
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def nothing(kernel: Any, grid: Any, tensors: tuple[Tensor, ...], form: Any) -> None:
    tensors[-1].zero_()


def broken(*_: object) -> None:
    raise RuntimeError("no compiler was found\nand more of it")


@pytest.mark.parametrize(("kernel", "why"), [(broken, "fails here (no compiler was found)"), (nothing, "gives values")])
def test_a_kernel_that_fails_or_is_off_is_not_used(
    kernel: Any, why: str, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = logits(model)
    monkeypatch.setattr(fused, "_launch", kernel)
    with pytest.warns(UserWarning, match="and slower: a Triton kernel"):
        model.fused = fuse(model.network)
    found = {part.name: part for part in model.fused}
    assert found["RMSNorm"].modules == ALL["RMSNorm"]
    for name in ("rotary embedding", "SwiGLU"):
        assert found[name].modules == 0
        assert str(found[name].why).startswith(why)
    monkeypatch.undo()
    assert torch.allclose(logits(model), before, atol=2e-5)


def test_a_norm_that_is_off_is_not_used(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_normed", lambda module, given: module.weight * given * 1.01)
    with pytest.warns(UserWarning, match="RMSNorm is as stock, and slower: torch's own kernel gives values"):
        assert fuse(model.network)[0].modules == 0


def test_a_full_memory_says_nothing_of_kernels(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(fused, "_launch", full)
    with pytest.raises(torch.OutOfMemoryError):
        fuse(model.network)


def test_a_module_that_is_written_otherwise_is_as_it_is(model: Model) -> None:
    """An RMSNorm with its own forward, and an MLP with a different activation."""

    class Other(llama_code.LlamaRMSNorm):
        def forward(self, hidden_states: Tensor) -> Any:
            return self.weight * hidden_states

    for module in model.network.modules():
        if isinstance(module, llama_code.LlamaRMSNorm):
            module.__class__ = Other
        if isinstance(module, llama_code.LlamaMLP):
            module.act_fn = nn.Sigmoid()
    why = "no module of it is written as Llama's is"
    found = {part.name: (part.modules, part.why) for part in fuse(model.network)}
    assert found == {"RMSNorm": (0, why), "rotary embedding": (LAYERS, None), "SwiGLU": (0, why)}


def test_gradients_go_through_the_stock_modules(model: Model) -> None:
    model.fused = fuse(model.network)
    network: Any = model.network
    norm = network.model.layers[0].input_layernorm
    out = network.model.layers[0].mlp(norm(torch.randn(1, 3, norm.weight.shape[0], device=PLACE)))
    out.sum().backward()
    assert norm.weight.grad is not None
    network.zero_grad(set_to_none=True)


def test_a_copy_of_a_fused_network_is_its_own(model: Model) -> None:
    model.fused = fuse(model.network)
    network: Any = model.network
    other = copy.deepcopy(network.model.layers[0].mlp)
    given = torch.randn(1, 2, other.hidden_size, device=PLACE)
    with torch.inference_mode(), use_fused():
        expected = other(given)
        network.model.layers[0].mlp.down_proj.weight.zero_()
        assert torch.equal(other(given), expected)
        assert not network.model.layers[0].mlp(given).any()


def test_layers_on_several_devices_are_as_they_are(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [SimpleNamespace(device=torch.device("cuda", n), dtype=torch.float32) for n in range(2)]
    monkeypatch.setattr(model.network, "parameters", lambda: iter(weights))
    assert {part.why for part in fuse(model.network)} == {"layers are on several devices"}


def test_without_triton_torchs_own_kernel_is_left(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "find_spec", lambda name: None)
    parts = fuse(model.network)
    assert [part.why for part in parts] == [None, "Triton is not installed", "Triton is not installed"]


def test_doctor_says_which_parts_are_fused() -> None:
    parts = [("a kernel", 3, None), ("a kernel", 0, "it fails"), ("a kernel", 2, "it fails")]
    assert [doctor._fused(FusedPart("x", *part)) for part in parts] == [
        "a kernel for each of 3 modules",
        "not fused: it fails",
        "a kernel for each of 2 modules; others are not fused: it fails",
    ]


def test_on_a_processor_nothing_is_fused(llama: Engine) -> None:
    if PLACE.type == "cpu":
        assert llama.fused == ()
        assert {type(module) for module in llama.network.modules() if "Norm" in type(module).__name__} == {
            llama_code.LlamaRMSNorm
        }


VARIANTS = """
import torch
from agentcho.runner.model import fused, fused_kernels
fused._launch = lambda kernel, grid, tensors, form: kernel.warmup(*tensors, form, grid=grid, enable_fp_fusion=False)
def some(*shape):
    return torch.empty(1, *shape, dtype=torch.bfloat16)
def variants(tokens):
    fused.gate(some(tokens, 14336), some(tokens, 14336))
    waves = some(tokens, 128), some(tokens, 128)
    fused.turn(None, some(tokens, 32, 128).transpose(1, 2), some(tokens, 8, 128).transpose(1, 2), *waves)
    kernels = fused_kernels.gate, fused_kernels.turn
    return sum(len(cache[0]) for kernel in kernels for cache in kernel.device_caches.values())
print(variants(1), [variants(tokens) for tokens in (2, 3, 8, 16, 64, 512, 4095)][-1])
"""


@pytest.mark.slow
def test_no_step_compiles_what_was_not_compiled_as_the_model_was_loaded(tmp_path: Path) -> None:
    """Triton itself chooses the variants, for a GPU that is not present: one for each kernel."""
    assert printed(VARIANTS, tmp_path) == "2 2\n"
