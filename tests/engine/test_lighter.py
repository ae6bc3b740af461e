"""Weights in 8 bits: how they are rounded, what they multiply to, and what an engine over them says and tells."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.engine.layout import Segment
from agentcho.errors import ModelError
from agentcho.runner.doctor import doctor
from agentcho.runner.lighter import Lighter, quantised
from agentcho.runner.prepack import packed

from .families import llama_family


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lighter")
    llama_family().save(folder)
    return folder


def light(folder: Path, **more: str) -> Engine:
    return Engine.load(folder, "cpu", **{"dtype": "bfloat16", "weights": "int8", **more}, store_tokens=1024)  # type: ignore[arg-type]


def by_hand(weight: torch.Tensor) -> torch.Tensor:
    """A matrix as its 8 bits say it, number by number."""
    rows = []
    for row in weight.tolist():
        step = max(map(abs, row)) / 127
        rows.append([round(each / step) * step if step else 0.0 for each in row])
    return torch.tensor(rows)


def test_a_matrix_is_rounded_row_by_row_as_by_hand() -> None:
    weight = torch.randn(6, 10) * torch.tensor([[1e-3], [1], [50], [0], [1], [1]])
    numbers, scale = quantised(weight)
    assert numbers.dtype == torch.int8
    assert torch.allclose(numbers * scale.unsqueeze(1), by_hand(weight), rtol=1e-5, atol=0)


@pytest.mark.parametrize("rows", [1, 3, 70])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_both_products_are_that_by_hand(rows: int, bias: bool, dtype: torch.dtype) -> None:
    layer = nn.Linear(64, 48, bias=bias, dtype=dtype)
    given = torch.randn(2, rows, 64, dtype=dtype)
    weight = by_hand(layer.weight.detach().float())
    wanted = given.float() @ weight.T + (layer.bias.detach().float() if bias else 0)
    # What a sum in the type may be off by grows with the sizes of its terms; a machine may add in bfloat16 itself.
    bound = (1e-5 if dtype == torch.float32 else 2**-6) * (given.float().abs() @ weight.abs().T + 1)
    Lighter.make(layer)
    with torch.no_grad():
        plain = layer(given).float()
        with packed():
            quick = layer(given).float()
    assert bool(((plain - wanted).abs() < bound).all())
    assert bool(((quick - wanted).abs() < bound).all())


def test_a_row_is_what_it_is_alone() -> None:
    layer = nn.Linear(64, 48, dtype=torch.bfloat16)
    Lighter.make(layer)
    given = torch.randn(9, 64, dtype=torch.bfloat16)
    given[0] *= 1e4  # a neighbour that would move a scale of all rows
    with torch.no_grad(), packed():
        alone = torch.cat([layer(row.unsqueeze(0)) for row in given[1:]])
        assert torch.allclose(layer(given)[1:], alone, rtol=1e-2, atol=1e-2)


def test_what_goes_through_has_gradients_and_the_weights_have_none() -> None:
    layer = nn.Linear(8, 4)
    Lighter.make(layer)
    given = torch.randn(3, 8, requires_grad=True)
    with packed():
        layer(given).sum().backward()
    assert given.grad is not None
    assert torch.allclose(given.grad[0], (layer.weight * layer.scale.unsqueeze(1)).sum(0))  # type: ignore[operator]
    assert layer.weight.grad is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_engine_says_the_same_alone_and_beside_others(folder: Path, dtype: str) -> None:
    with light(folder, dtype=dtype) as engine:
        contexts = engine.prefill([Prefill(f"word {i} " * (i + 1)) for i in range(3)])
        asked = [Decode(parents=[each], sampling=Sampling(max_tokens=2), logits=True) for each in contexts]
        together = engine.decode(asked)
        for call, beside in zip(asked, together, strict=True):
            alone = engine.decode([call])[0]
            gap = (engine.logits(alone)[0] - engine.logits(beside)[0]).abs().max()
            assert float(gap) < (1e-3 if dtype == "float32" else 8e-2)


@pytest.mark.slow
def test_an_adapter_over_it_can_be_trained(folder: Path) -> None:
    fields = {"peft_type": "LORA", "r": 4, "target_modules": ["q_proj", "v_proj"]}
    with light(folder) as engine, engine.trained(fields) as trained:
        trained.differentiable([Segment(tuple(range(5, 15)), 0, wanted=range(10))]).sum().backward()  # type: ignore[no-untyped-call]
        found = {name: each.grad for name, each in trained.network.named_parameters() if "lora_B" in name}
        assert len(found) == 8
        assert all(grad is not None and grad.abs().sum() > 0 for grad in found.values())


def test_bits_are_in_the_fingerprint_and_not_in_the_digest_of_what_was_loaded(folder: Path) -> None:
    with light(folder) as engine, Engine.load(folder, "cpu", "bfloat16") as whole:
        assert engine.fingerprint["bits"] == "int8"
        assert "bits" not in whole.fingerprint
        assert engine.fingerprint["weights"] == whole.fingerprint["weights"]
        assert engine._model.origin != whole._model.origin
        assert not isinstance(engine.network.get_output_embeddings(), Lighter)  # type: ignore[operator]


def test_the_doctor_says_how_many_layers_are_in_few_bits(folder: Path) -> None:
    (row,) = [row for row in doctor(folder, "cpu", "bfloat16", weights="int8").rows if row.check == "weights"]
    assert row.result == "int8"
    assert row.detail.startswith("28 layers")


def test_unknown_bits_and_a_merge_are_refused_before_anything_is_read() -> None:
    with pytest.raises(ModelError, match="unknown weights 'int3'; give int8"):
        Engine.load("there/is/no such folder", weights="int3")
    with pytest.raises(ModelError, match="cannot be merged into weights in int8"):
        Engine.load("there/is/no such folder", weights="int8", merge=True)
