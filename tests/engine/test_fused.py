"""On CUDA, torch's attention is called so that its fused kernels apply: no mask where only causality hides keys, no
mask with grouped heads, and never cuDNN's, which builds a plan for every length. The GPU is simulated."""

from __future__ import annotations

from threading import Barrier, Thread
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.attention.bias import CausalBias
from torch.nn.functional import scaled_dot_product_attention

from agentcho import Decode, Engine, Prefill
from agentcho.protocol.call import Repair
from agentcho.reuse.top_k import TopK
from agentcho.runner.attention import dense, flex, triton_paged
from agentcho.runner.attention.base import CausalMask, Scoring
from agentcho.runner.invariance import _Watch
from agentcho.runner.kv import gather
from agentcho.runner.model.device import DevicePlacement, fused_attention
from agentcho.runner.model.loading import EngineSizes, prove_model
from agentcho.runner.model.model import Model, find

from ..device import on_processor
from ..engines import Engines
from .families import Family, families
from .pretend import Pretend, put

pytestmark = on_processor
GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
LONG = "so it was and so it is and so it will be " * 3
KINDS = {family.name: family for family in families() if family.name in ("llama", "qwen3 sliding")}


class Asked(NamedTuple):
    """One call of torch's attention. `masked`: its mask is a tensor; `causal`: only causality hides keys."""

    queries: int
    grouped: bool
    mask: Tensor | None
    masked: bool
    causal: bool
    cudnn: bool


def cudnn() -> bool:
    """Whether torch may choose cuDNN's attention now."""
    return bool(torch.backends.cuda.cudnn_sdp_enabled())  # type: ignore[no-untyped-call]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """Records every call of torch's attention."""
    calls = list[Asked]()

    def spy(queries: Tensor, keys: Tensor, values: Tensor, **how: Any) -> Tensor:
        mask, grouped = how.get("attn_mask"), how.get("enable_gqa", False)
        bias = isinstance(mask, CausalBias)
        causal = bias or how.get("is_causal", False)
        calls.append(Asked(queries.shape[2], grouped, mask, mask is not None and not bias, causal, cudnn()))
        return scaled_dot_product_attention(queries, keys, values, **how)

    monkeypatch.setattr(dense, "scaled_dot_product_attention", spy)
    return calls


@pytest.fixture(autouse=True)
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable kernels that cannot run on a simulated device."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(gather, "serves", lambda device: False)
    for module, name in ((flex, "why_not_flex"), (triton_paged, "why_not_triton")):
        monkeypatch.setattr(module, name, lambda device: "pretended")


def pretended(engines: Engines, family: Family) -> Engine:
    """An engine on a simulated GPU. Call it inside `Pretend`."""
    loaded = Model.load(find(engines.folder(family)), DevicePlacement("cpu"))
    put(loaded.network, GPU)
    model = Model(loaded.source, loaded.network, loaded.tokenizer)
    engine = Engine(*prove_model(model, EngineSizes(None, 2048, 2048)))
    engine._runner.graphs = None
    return engine


def played(engine: Engine) -> list[Tensor]:
    """Long and short messages, alone and over others, an answer, and a repaired message."""
    first = engine.prefill([Prefill(LONG), Prefill("we met here", role="system")])
    later = engine.prefill(Prefill(LONG, parents=first))
    said = engine.decode(Decode("To Bob: ", parents=[later, first[0]], forced=(5, 6, 7)))
    mended = engine.repair(Repair(later, TopK(0.3), parents=first[:1]))
    return [keys for id in (later, said, mended) for keys, _ in engine.cached(id)]


@pytest.mark.parametrize("flash", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_what_fused_kernels_can_serve_is_asked_of_them(
    name: str, flash: bool, engines: Engines, asked: list[Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a window some layers need a mask. All other layers, and models without windows, need one only for a repair,
    which hides more than later keys."""
    monkeypatch.setattr(dense, "can_use_flash_attention", lambda params: flash)
    family = KINDS[name]
    with engines(family) as plain:
        wanted = played(plain)
    asked.clear()
    with Pretend():
        engine = pretended(engines, family)
        assert not [each for each in asked if each.cudnn]
        asked.clear()
        found = played(engine)
    assert all(torch.allclose(x, y, atol=1e-5) for x, y in zip(found, wanted, strict=True))
    assert not [each for each in asked if each.cudnn]
    assert not [each for each in asked if each.masked and each.grouped]
    causal = [each for each in asked if each.causal and each.queries > dense.FEW]
    assert {each.grouped for each in causal} == {flash}
    windows = sum(layer.kind != "full" for layer in family.layers)
    full = len(family.layers) - windows
    spans = sum(each.causal for each in asked) // full + 1
    masked = [each for each in asked if each.masked and each.mask is not None and each.mask.ndim == 2]
    assert spans > 3
    assert len(masked) == windows * spans + full  # the last term: the repair's


@pytest.mark.parametrize("keys", [70, 90])
@pytest.mark.parametrize("flash", [False, True])
def test_causality_alone_gives_what_its_mask_gives(keys: int, flash: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "can_use_flash_attention", lambda params: flash)
    mask = CausalMask(70, keys, CPU)
    tensors = torch.randn(1, 4, 70, 16), torch.randn(1, 2, keys, 16), torch.randn(1, 2, keys, 16)
    found = dense._causal(*tensors, mask, 0.25)
    torch.testing.assert_close(found, dense.attend(*tensors, dense.seen_by(mask), Scoring(0.25)), rtol=1e-4, atol=1e-5)


def test_causality_alone_is_said_where_operations_are_watched() -> None:
    """The proof of batch-invariant sizes, with which `deterministic` begins, watches operations this way."""
    tensors = torch.randn(1, 4, 70, 16), torch.randn(1, 4, 90, 16), torch.randn(1, 4, 90, 16)
    plain = dense._causal(*tensors, CausalMask(70, 90, CPU), 0.25)
    with _Watch() as watch:
        found = dense._causal(*tensors, CausalMask(70, 90, CPU), 0.25)
    assert not watch.decided
    assert torch.equal(found, plain)


def test_a_cpu_is_given_the_mask(engines: Engines, asked: list[Asked]) -> None:
    """So its bits stay what they were; cuDNN does not affect it."""
    with engines() as engine:
        played(engine)
    assert {type(each.mask) for each in asked} == {Tensor, type(None)}
    assert not [each for each in asked if each.causal]
    assert {each.cudnn for each in asked} == {cudnn()}


def test_what_torch_allows_is_set_back_by_the_last_forward() -> None:
    """Two overlapping forwards in two threads."""
    before, both, seen = cudnn(), Barrier(2, timeout=60), list[bool]()

    def forward(last: bool) -> None:
        with fused_attention([GPU]):
            both.wait()
            if not last:
                return
            other.join()
            seen.append(cudnn())

    other = Thread(target=forward, args=(False,))
    other.start()
    forward(True)
    assert seen == [False]
    assert cudnn() is before
