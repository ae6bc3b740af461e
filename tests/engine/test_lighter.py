"""Low-bit weights: rounding, products, and what an engine with such weights says and reports."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import nn

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.config import Bits
from agentcho.engine.call_layout import Segment
from agentcho.errors import ModelError, UnsupportedModel
from agentcho.runner.doctor import doctor
from agentcho.runner.quant import int_matmul
from agentcho.runner.quant.int_matmul import FEW, Making, Product, fastest_matmul, int4_matmul, int8_matmul
from agentcho.runner.quant.prepack import use_packed
from agentcho.runner.quant.quantize import GROUP, QuantizedMatrix, pack_nibbles, quantized_matrix, unpack_nibbles
from agentcho.runner.quant.quantized_linear import SAID, QuantizedLinear, quantization_summary, quantize_linears

from ..device import DEVICE, on_processor
from .families import llama_family

BITS: tuple[Bits, ...] = get_args(Bits)
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lighter")
    llama_family().save(folder)
    return folder


def light(folder: Path, **more: Any) -> Engine:
    return Engine.load(folder, DEVICE, **{"dtype": "bfloat16", "weights": "int8", "store_tokens": 1024, **more})


def by_hand(weight: torch.Tensor, bits: Bits) -> torch.Tensor:
    """A matrix rounded by definition, number by number, in float64."""
    rows = []
    for row in weight.tolist():
        groups = [row] if bits == "int8" else [row[at : at + GROUP] for at in range(0, len(row), GROUP)]
        rows.append([each for group in groups for each in group_by_hand(group, bits, weight.dtype)])
    return torch.tensor(rows, dtype=torch.float64)


def group_by_hand(group: list[float], bits: Bits, dtype: torch.dtype) -> list[float]:
    """Numbers that share one scale. Quotients are taken in float32, else a tie could round either way."""
    extreme = max(group, key=abs)
    step = abs(extreme) / 127 if bits == "int8" else extreme / -8
    step = float(torch.tensor(step).to(dtype if bits == "int8" else torch.bfloat16))
    low, high = (-127, 127) if bits == "int8" else (-8, 7)
    times = torch.tensor([each / step if step else 0.0 for each in group], dtype=torch.float64).float().tolist()
    return [max(low, min(high, round(each))) * step for each in times]


UNEVEN = torch.tensor([[1e-3], [1], [50], [0], [1], [1e-9]]).repeat(8, 1)
"""Rows of very different sizes."""


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_matrix_is_rounded_as_by_hand(bits: Bits, dtype: torch.dtype) -> None:
    weight = (torch.randn(48, 64) * UNEVEN).to(dtype)
    weight[1, :32] = 0
    matrix = quantized_matrix(weight, bits)
    assert matrix.numbers.dtype == torch.int8
    near = {"rtol": 1e-5 if dtype == torch.float32 else 2**-8, "atol": 0.0}
    assert torch.allclose(matrix.whole().double(), by_hand(weight, bits), **near)  # type: ignore[arg-type]
    if bits == "int4":
        assert torch.equal(unpack_nibbles(pack_nibbles(matrix.numbers)), matrix.numbers)


def test_4_bits_are_off_by_a_sixteenth_of_the_largest_of_a_group_and_it_keeps_its_sign() -> None:
    weight = torch.randn(8, 64)
    off = (quantized_matrix(weight, "int4").whole() - weight).abs().view(8, 2, 32)
    assert bool((off <= weight.abs().view(8, 2, 32).amax(2, keepdim=True) * 0.13).all())
    assert off.mean() < 0.15


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_of_few_rows_and_of_many_are_that_by_hand(bits: Bits, bias: bool, dtype: torch.dtype) -> None:
    layer = nn.Linear(64, 48, bias=bias, dtype=dtype)
    layer.weight.data *= UNEVEN
    weight, quick = by_hand(layer.weight.detach(), bits), fastest_matmul(bits, dtype, torch.device("cpu"))
    assert quick is not None
    QuantizedLinear.make(layer, bits, quick)
    for rows in (1, 3, 70):
        given = torch.randn(2, rows, 64, dtype=dtype)
        wanted = given.double() @ weight.T + (layer.bias.detach().double() if bias else 0)
        # The error of a sum grows with the sizes of its terms; some machines accumulate in bfloat16.
        bound = (1e-5 if dtype == torch.float32 else 2**-6) * (given.double().abs() @ weight.abs().T + bias)
        with torch.no_grad():
            plain = layer(given).double()
            with use_packed():
                fast = layer(given).double()
        assert bool(((plain - wanted).abs() <= bound).all())
        assert bool(((fast - wanted).abs() <= bound).all())


@pytest.mark.parametrize(("bits", "making"), [("int8", int8_matmul), ("int4", int4_matmul)])
@pytest.mark.parametrize("native", [True, False])
def test_a_product_is_for_few_rows_where_the_processor_multiplies_whole_numbers_quickly(
    monkeypatch: pytest.MonkeyPatch, bits: Bits, making: Making, native: bool
) -> None:
    monkeypatch.setattr(int_matmul, "has_bfloat16", lambda: native)
    layer, seen = nn.Linear(64, 48, dtype=torch.bfloat16), list[int]()
    QuantizedLinear.make(layer, bits, making)
    inner = layer._product
    assert callable(inner)

    def product(rows: torch.Tensor) -> torch.Tensor:
        seen.append(len(rows))
        return inner(rows)

    layer._product = product
    few = FEW[making]
    with torch.no_grad(), use_packed():
        for rows in (few, few + 1):
            assert layer(torch.randn(1, rows, 64, dtype=torch.bfloat16)).shape == (1, rows, 48)
    assert seen == ([few] if native else [few, few + 1])


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_is_what_it_is_alone(bits: Bits, dtype: torch.dtype) -> None:
    layer = nn.Linear(64, 48, dtype=dtype)
    QuantizedLinear.make(layer, bits, fastest_matmul(bits, dtype, torch.device("cpu")))
    given = torch.randn(9, 64, dtype=dtype)
    given[0] *= 1e4  # a neighbour that would change a scale shared by all rows
    near = 1e-5 if dtype == torch.float32 else 1e-2
    with torch.no_grad(), use_packed():
        alone = torch.cat([layer(row.unsqueeze(0)) for row in given[1:]])
        assert torch.allclose(layer(given)[1:], alone, rtol=near, atol=near)


@pytest.mark.parametrize("wrong", [lambda matrix: lambda rows: rows @ matrix.whole().T * 1.1, lambda matrix: 1 / 0])
def test_a_product_that_gives_something_else_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Any], Any]
) -> None:
    def broken(matrix: QuantizedMatrix) -> Product:
        try:
            return wrong(matrix)  # type: ignore[no-any-return]
        except ZeroDivisionError:
            raise RuntimeError("no kernel") from None

    monkeypatch.setattr(int_matmul, "fp16_matmul", broken)
    assert fastest_matmul("int4", torch.float32, torch.device("cpu")) is None
    layer = nn.Linear(64, 48)
    QuantizedLinear.make(layer, "int4", None)
    with use_packed():
        assert torch.equal(layer(torch.eye(64)).T - layer.bias.unsqueeze(1), layer.whole() + 0 * layer.bias[0])  # type: ignore[operator]


@pytest.mark.parametrize("wrong", [1, 16, None])
@on_processor
def test_the_gate_refuses_a_product_that_is_wrong_for_one_row_or_for_many(
    folder: Path, monkeypatch: pytest.MonkeyPatch, wrong: int | None
) -> None:
    def making(matrix: QuantizedMatrix) -> Product:
        return lambda rows: rows @ matrix.whole().T * (1.2 if len(rows) == wrong else 1)

    monkeypatch.setattr("agentcho.runner.quant.quantized_linear.fastest_matmul", lambda *given: making)
    monkeypatch.setitem(SAID, making, "by hand")
    if wrong is None:
        light(folder, dtype="float32").close()
        return
    with pytest.raises(UnsupportedModel, match="a packed forward differs from the stock one"):
        light(folder, dtype="float32")


def test_what_goes_through_has_gradients_and_the_weights_have_none() -> None:
    layer = nn.Linear(32, 16)
    QuantizedLinear.make(layer, "int4", fastest_matmul("int4", torch.float32, torch.device("cpu")))
    given = torch.randn(3, 32, requires_grad=True)
    with use_packed():
        layer(given).sum().backward()
    assert given.grad is not None
    assert torch.allclose(given.grad[0], layer.whole().sum(0))  # type: ignore[operator]
    assert layer.weight.grad is None


@pytest.mark.parametrize(("dtype", "bits"), [("float32", "int4"), ("bfloat16", "int8"), ("bfloat16", "int4")])
@pytest.mark.slow
def test_an_engine_says_the_same_alone_and_beside_others(folder: Path, dtype: str, bits: str) -> None:
    with light(folder, dtype=dtype, weights=bits) as engine:
        contexts = engine.prefill([Prefill(f"word {i} " * (i + 1)) for i in range(3)])
        asked = [Decode(parents=[each], sampling=Sampling(max_tokens=2), logits=True) for each in contexts]
        together = engine.decode(asked)
        for call, beside in zip(asked, together, strict=True):
            alone = engine.decode([call])[0]
            gap = (engine.logits(alone)[0] - engine.logits(beside)[0]).abs().max()
            assert float(gap) < (1e-3 if dtype == "float32" else 8e-2)


@pytest.mark.slow
@pytest.mark.parametrize("bits", BITS)
def test_an_adapter_over_it_can_be_trained(folder: Path, bits: str) -> None:
    fields = {"peft_type": "LORA", "r": 4, "target_modules": ["q_proj", "v_proj"]}
    with light(folder, weights=bits) as engine, engine.trained(fields) as trained:
        trained.differentiable([Segment(tuple(range(5, 15)), 0, wanted=range(10))]).sum().backward()  # type: ignore[no-untyped-call]
        found = {name: each.grad for name, each in trained.network.named_parameters() if "lora_B" in name}
        assert len(found) == 8
        assert all(grad is not None and grad.abs().sum() > 0 for grad in found.values())


def test_bits_are_in_the_fingerprint_and_not_in_the_digest_of_what_was_loaded(folder: Path) -> None:
    with light(folder) as engine, Engine.load(folder, DEVICE, "bfloat16") as whole:
        assert engine.fingerprint["bits"] == "int8"
        assert "bits" not in whole.fingerprint
        assert engine.fingerprint["weights"] == whole.fingerprint["weights"]
        assert engine._model.origin != whole._model.origin
        head, embeddings = engine.network.get_output_embeddings(), engine.network.get_input_embeddings()  # type: ignore[operator]
        assert isinstance(head, QuantizedLinear)
        assert head.weight.dtype == torch.int8
        assert embeddings.weight.dtype == torch.bfloat16


def test_what_is_stored_is_under_another_key_in_other_bits(folder: Path) -> None:
    keys = set[bytes]()
    for bits in (None, *BITS):
        with Engine.load(folder, DEVICE, "float32", weights=bits, store_tokens=256) as engine:
            keys.add(engine._encoding(engine.prefill("the same words")).entry.key)
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("dtype", "bits", "how"),
    [
        ("bfloat16", "int8", "28 layers in .*, a scale for each row; 28 by torch's product of 8 bits;"),
        ("float32", "int4", "28 layers in .*, a scale for each 32 numbers; 28 by FBGEMM, over a copy in 16 bits;"),
        pytest.param("bfloat16", "int4", ".*; 28 by torch's product of 4 bits, over a second copy;", marks=SLOW),
        pytest.param("float16", "int4", ".*; 28 dequantized each time;", marks=SLOW),
    ],
)
def test_the_doctor_says_how_many_layers_are_in_few_bits_and_how_they_multiply(
    folder: Path, dtype: str, bits: str, how: str
) -> None:
    (row,) = [row for row in doctor(folder, DEVICE, dtype, weights=bits).rows if row.check == "weights"]
    assert row.result == bits
    assert re.match(how, row.detail)


def test_a_layer_whose_width_has_no_whole_number_of_groups_is_left_whole_and_counted() -> None:
    class Network(nn.Sequential):
        def get_output_embeddings(self) -> None:
            return None

    network = Network(nn.Linear(40, 64), nn.Linear(64, 40))
    assert quantize_linears(network, "int4", "m") == 1
    assert quantization_summary(network).startswith("1 layers in ")
    assert "; 1 left whole, with a width that is no multiple of 32;" in quantization_summary(network)
    with pytest.raises(ModelError, match="m has no linear layers that can be quantized to int4"):
        quantize_linears(Network(nn.Linear(40, 64)), "int4", "m")


def test_unknown_bits_and_a_merge_are_refused_before_anything_is_read() -> None:
    with pytest.raises(ModelError, match="unknown weights 'int3'; give int8, int4, or leave"):
        Engine.load("there/is/no such folder", weights="int3")
    with pytest.raises(ModelError, match="cannot be merged into weights in int8"):
        Engine.load("there/is/no such folder", weights="int8", merge=True)
