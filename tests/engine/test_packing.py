"""Packed weights give the same products, are used only where requested, and leave the visible weights unchanged."""

from __future__ import annotations

import copy
import os
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from agentcho import Decode, Engine, Prefill
from agentcho.runner.model.device import SMALL, dtype_of, has_bfloat16
from agentcho.runner.model.digests import weights_digest
from agentcho.runner.quant import prepack
from agentcho.runner.quant.prepack import (
    PackedLinear,
    copy_columns,
    matmul_kernels,
    pack_linears,
    use_packed,
    why_not_packable,
)
from tests.conftest import PLAIN

from ..device import on_processor
from .families import families, llama_family


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of products computed with packed weights."""
    seen: list[tuple[int, ...]] = []
    kernels = torch.ops.mkldnn

    class Counting:
        _reorder_linear_weight = kernels._reorder_linear_weight

        def _linear_pointwise(self, input: Tensor, *rest: object) -> Tensor:
            seen.append(tuple(input.shape))
            return kernels._linear_pointwise(input, *rest)  # type: ignore[no-any-return]

    monkeypatch.setattr("agentcho.runner.quant.prepack._kernels", Counting)
    return seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 24), (1, 7, 24), (40, 24), (2, 3, 24)])
def test_products_are_the_same(shape: tuple[int, ...], bias: bool, dtype: torch.dtype) -> None:
    if cause := why_not_packable(dtype):
        pytest.skip(cause)
    layer = nn.Linear(24, 56, bias=bias, dtype=dtype)
    rows = torch.randn(shape, dtype=dtype)
    expected = layer(rows).detach()
    assert pack_linears(nn.Sequential(layer), least=0) == layer.weight.nbytes
    with torch.no_grad(), use_packed():
        assert torch.allclose(layer(rows), expected, atol=1e-5 if dtype == torch.float32 else 2e-2)


def test_they_are_used_where_they_are_asked_for_alone(counted: list[tuple[int, ...]]) -> None:
    layer = nn.Linear(8, 8)
    pack_linears(nn.Sequential(layer), least=0)
    counted.clear()  # forget the trial's products
    layer(torch.randn(3, 8)).sum().backward()
    assert not counted
    assert layer.weight.grad is not None
    with pytest.raises(RuntimeError), use_packed():
        layer(torch.randn(3, 9))
    with torch.no_grad():
        layer(torch.randn(3, 8))
    assert counted == [(3, 9)]


@pytest.mark.parametrize(("wide", "few"), [("AVX512", 3), ("AVX2", 1), ("DEFAULT", 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_few_rows_read_the_weights_where_last_bits_may_differ(
    wide: str, few: int, dtype: torch.dtype, counted: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if cause := why_not_packable(dtype):
        pytest.skip(cause)
    monkeypatch.setattr(prepack, "cpu_capability", lambda: wide)
    layer = nn.Linear(24, 8, dtype=dtype)
    pack_linears(nn.Sequential(layer), least=0)
    packed = dict[tuple[bool, int], bool]()
    for brief, rows in product([True, False], range(1, 6)):
        counted.clear()
        with torch.no_grad(), use_packed(brief):
            layer(torch.randn(1, rows, 24, dtype=dtype))
        packed[brief, rows] = bool(counted)
    least = few if dtype == torch.float32 else 0
    assert packed == {(brief, rows): not brief or rows > least for brief, rows in packed}


def test_a_network_looks_the_same() -> None:
    network = llama_family().build()
    before, state = weights_digest(network), {name: each.clone() for name, each in network.state_dict().items()}
    assert pack_linears(network, least=0) > 0
    assert weights_digest(network) == before
    assert network.state_dict().keys() == state.keys()
    assert sum(isinstance(each, PackedLinear) for each in network.modules()) == 4 * 7 + 1


@pytest.mark.parametrize("bias", [False, True])
def test_products_by_columns_are_the_same(bias: bool) -> None:
    layer = nn.Linear(24, 56, bias=bias)
    given = [torch.randn(1, rows, 24) for rows in (1, 3, 4, 17)]
    expected = [layer(rows).detach() for rows in given]
    assert copy_columns(nn.Sequential(layer)) == layer.weight.nbytes
    with torch.no_grad(), use_packed():
        assert all(torch.allclose(layer(*pair[:1]), pair[1], atol=1e-5) for pair in zip(given, expected, strict=True))


def test_columns_are_used_for_several_rows_where_they_are_asked_for_and_the_weight_is_what_it_was() -> None:
    layer: Any = nn.Linear(8, 8, bias=False)
    copy_columns(nn.Sequential(layer))
    layer._copy.fill_(0)
    nothing, rows = torch.zeros(1, 4, 8), torch.randn(1, 4, 8)
    with torch.no_grad():
        with use_packed():
            assert torch.equal(layer(rows), nothing)
            assert not torch.equal(layer(rows[:, :3]), nothing[:, :3])
            assert not torch.equal(layer(rows[0, 0]), nothing[0, 0])
        assert not torch.equal(layer(rows), nothing)
        layer.weight += 1
        with use_packed():
            assert not torch.equal(layer(rows), nothing)


def test_columns_are_for_small_networks_in_whole_numbers_and_hidden_from_who_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network: Any = llama_family().build()
    before = weights_digest(network)
    assert copy_columns(network) > 0
    assert weights_digest(network) == before
    assert copy_columns(network) == 0
    assert not any(isinstance(each, prepack.CopiedLinear) for each in copy.deepcopy(network).modules())
    assert copy_columns(nn.Sequential(nn.Linear(8, 8, dtype=torch.bfloat16))) == 0
    monkeypatch.setattr(prepack, "LEAST", 8 * 8 * 4)
    assert copy_columns(nn.Sequential(nn.Linear(8, 8))) == 0


def test_packing_tells_of_every_matrix() -> None:
    heard: list[tuple[str, int, int]] = []
    pack_linears(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), least=0, tell=lambda *told: heard.append(told))
    assert heard == [("matrices packed", number, 2) for number in range(3)]


def test_what_does_not_pay_or_does_not_fit_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not pack_linears(nn.Sequential(nn.Linear(8, 8)))
    assert not pack_linears(nn.Sequential(nn.Linear(8, 8, dtype=torch.float16)), least=0)
    assert not pack_linears(nn.Sequential(nn.Embedding(8, 8)), least=0)
    monkeypatch.setattr("agentcho.runner.quant.prepack.free_memory", lambda device: 4 * 8 * 8 * 4 - 1)
    assert not pack_linears(nn.Sequential(nn.Linear(8, 8)), least=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_kernels_for_a_dtype_its_layers_stay_as_they_are(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepack, "reorders_bfloat16", lambda: False)
    network = nn.Sequential(nn.Linear(8, 8, dtype=dtype))
    there = dtype == torch.float32
    assert bool(pack_linears(network, least=0)) is there
    assert isinstance(network[0], PackedLinear) is there
    word, why = matmul_kernels(network, torch.device("cpu"))
    assert word == ("packed" if there else "plain")
    assert str(dtype).removeprefix("torch.") in why


def test_a_processor_that_promises_too_much_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails:
        def _reorder_linear_weight(self, weight: Tensor) -> Tensor:
            raise RuntimeError("not on this one\nat all")

    class Errs:
        def _reorder_linear_weight(self, weight: Tensor) -> Tensor:
            return weight

        def _linear_pointwise(self, rows: Tensor, weight: Tensor, *rest: object) -> Tensor:
            return rows @ weight.T + 1

    monkeypatch.setattr(prepack, "_kernels", Fails)
    assert why_not_packable(torch.float32) == "a trial failed: not on this one"
    assert not pack_linears(nn.Sequential(nn.Linear(8, 8)), least=0)
    monkeypatch.setattr(prepack, "_kernels", Errs)
    assert why_not_packable(torch.float32) == "a trial gave other products"
    assert why_not_packable(torch.float16) == "there are no kernels for float16"


@on_processor
def test_the_doctor_says_which_kernels_are_used_and_why(llama: Engine) -> None:
    word, why = matmul_kernels(llama.network, torch.device("cpu"))
    assert word == "columns"
    assert why.startswith(f"{4 * 7 + 1} layers of float32, ")
    assert matmul_kernels(nn.Sequential(nn.Linear(8, 8)), torch.device("cpu"))[0] == "plain"
    assert matmul_kernels(llama.network, torch.device("cuda")) == ("plain", "torch's own for cuda")


def test_an_engine_says_the_same_through_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[tuple[int, ...]]
) -> None:
    llama_family().save(tmp_path)
    rows: list[Tensor] = []
    for least in (1 << 40, 0):
        monkeypatch.setattr("agentcho.runner.quant.prepack.LEAST", least)
        engine = Engine.load(tmp_path, device="cpu", dtype="float32")
        assert bool(counted) == (not least)
        told = engine.prefill([Prefill("What is a fox?")])
        rows.append(engine.logits(engine.decode([Decode(parents=told, forced=tuple(range(40, 60)), logits=True)])[0]))
    assert torch.allclose(rows[0], rows[1], atol=1e-5)


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_steps_of_few_rows_read_the_weights_in_the_fast_profile_alone(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[tuple[int, ...]]
) -> None:
    next(each for each in families() if each.name == kind).save(tmp_path)
    monkeypatch.setattr("agentcho.runner.quant.prepack.LEAST", 0)
    monkeypatch.setattr(prepack, "cpu_capability", lambda: "AVX512")
    engine = Engine.load(tmp_path, device="cpu", dtype="float32")
    assert engine.direct is (kind == "llama")
    told = engine.prefill([Prefill("What is a fox?")])

    def logits(rows: int, exact: bool) -> Tensor:
        counted.clear()
        asked = [Decode(parents=told, forced=tuple(range(40 + row, 50 + row)), logits=True) for row in range(rows)]
        ids = engine.submit(asked)
        while not engine.idle:
            engine.step(exact)
        return engine.logits(ids[0])

    def packed() -> set[int]:
        return {shape[-2] for shape in counted} - {0}

    alone = logits(1, exact=True)
    assert min(packed()) == 1
    assert torch.equal(alone, logits(6, exact=True))
    assert torch.allclose(alone, logits(6, exact=False), atol=1e-5)
    assert 6 in packed()
    assert torch.allclose(alone, logits(3, exact=False), atol=1e-5)
    assert min(packed(), default=4) > 3


def test_a_weight_that_was_changed_is_not_read_from_its_copy() -> None:
    written, moved = nn.Linear(8, 8), nn.Linear(8, 8)
    pack_linears(nn.Sequential(written, moved), least=0)
    rows = torch.randn(3, 8)
    with torch.no_grad(), use_packed():
        written.weight.mul_(2)
        moved.weight.data = moved.weight.data * 2
        for layer in (written, moved):
            assert torch.allclose(layer(rows), rows @ layer.weight.T + layer.bias, atol=1e-5)


def test_a_copy_of_a_layer_is_a_plain_one() -> None:
    """Trainers of whole layers copy them and change the copy."""
    layer = nn.Linear(8, 8)
    pack_linears(nn.Sequential(layer), least=0)
    other = copy.deepcopy(layer)
    assert type(other) is nn.Linear
    with torch.no_grad():
        other.weight.mul_(2)
    with torch.no_grad(), use_packed():
        rows = torch.randn(3, 8)
        assert torch.allclose(other(rows) - other.bias, 2 * (layer(rows) - layer.bias), atol=1e-5)


def test_weights_that_were_made_for_inference_pack_too() -> None:
    with torch.inference_mode():
        layer = nn.Linear(8, 8)
        assert pack_linears(nn.ModuleList([layer]), least=1)


@pytest.mark.skipif(PLAIN not in os.environ, reason="not asked for")
def test_torch_says_no_where_the_tests_are_told_to_run_as_on_a_plain_processor() -> None:
    assert not has_bfloat16()
    assert why_not_packable(torch.bfloat16)
    assert dtype_of("auto", torch.device("cpu"), weights=SMALL + 1) is torch.float32
