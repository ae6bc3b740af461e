"""The direct forward of a network gives the same bits as the library's forward, and is not used where it would not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from agentcho import Engine, Prefill
from agentcho.protocol.call import Decode
from agentcho.runner import doctor
from agentcho.runner.model import direct_forward as direct_forwards
from agentcho.runner.model.direct_forward import DirectForward, _Asked
from agentcho.runner.model.model import Model
from agentcho.runner.quant.prepack import ColumnLinear

from ..device import on_processor
from ..engines import Engines
from .families import Family, cell, families

pytestmark = on_processor
KINDS = [cell(each, quick=each.name in ("qwen2", "qwen3", "mistral")) for each in families()]
BUILT_ALIKE = {"llama", "mistral", "qwen2", "qwen3"}


def given(tokens: int, model: Model, wanted: tuple[int, ...] | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, positions and the tokens whose logits are wanted, all by default."""
    dice = torch.Generator().manual_seed(tokens)
    ids = torch.randint(model.vocabulary, (1, tokens), generator=dice)
    places = torch.randint(min(model.context, 500), (1, tokens), generator=dice)
    return ids, places, torch.arange(tokens) if wanted is None else torch.tensor(wanted, dtype=torch.long)


@pytest.mark.parametrize("family", KINDS)
def test_a_network_built_as_llama_has_a_direct_forward_of_the_same_bits(engines: Engines, family: Family) -> None:
    model = engines(family)._model
    assert (model.direct is not None) == (family.config().model_type in BUILT_ALIKE)
    for tokens in (1, 2, 17):
        with torch.inference_mode():
            expected = model.differentiable(*given(tokens, model), _Asked())
        assert torch.equal(model.forward(*given(tokens, model), _Asked()), expected)


class _Kept(_Asked):
    """Also keeps the keys and values of all layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stored = list[Tensor]()

    def attend(self, layer: int, *given: Any, **more: Any) -> Tensor:
        self.stored += given[1:3]
        return super().attend(layer, *given, **more)


@pytest.mark.parametrize("wanted", [(), (8,), (3, 16, 0)])
def test_logits_are_made_of_the_tokens_that_are_wanted_and_keys_of_all(engines: Engines, wanted: Any) -> None:
    model, stock, kept = engines()._model, _Kept(), _Kept()
    with torch.inference_mode():
        expected = model.differentiable(*given(17, model, wanted), stock)
    assert torch.equal(model.forward(*given(17, model, wanted), _Asked()), expected)
    found = model.forward(*given(17, model, wanted), kept, brief=True)
    assert found.shape == (len(wanted), model.vocabulary)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert len(stock.stored) == 2 * model.layers
    assert all(torch.equal(*pair) for pair in zip(kept.stored, stock.stored, strict=True))


def test_the_last_layer_computes_no_more_than_is_wanted(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, linear = list[tuple[int, ...]](), ColumnLinear.forward

    def counted(self: ColumnLinear, given: Tensor) -> Tensor:
        seen.append(tuple(given.shape[:2]))
        return linear(self, given)

    monkeypatch.setattr(ColumnLinear, "forward", counted)
    model = llama._model
    model.shorten()
    seen.clear()
    model.forward(*given(17, model, (4, 2)), _Asked(), brief=True)
    layers = model.layers
    assert seen.count((1, 17)) == 7 * (layers - 1) + 3
    assert seen.count((1, 2)) == 4 + 1


@pytest.fixture
def passed(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The token counts of this engine's direct forwards."""
    found, direct = list[int](), DirectForward.__call__

    def counted(self: DirectForward, ids: Tensor, *more: Any, **how: Any) -> Tensor:
        found.append(ids.shape[1])
        return direct(self, ids, *more, **how)

    monkeypatch.setattr(DirectForward, "__call__", counted)
    return found


def test_prefills_and_decodes_are_direct(llama: Engine, passed: list[int]) -> None:
    [message] = llama.prefill([Prefill("", tokens=(5, 6, 7))])
    llama.decode([Decode(parents=[message], forced=(8, 9))])
    assert len(passed) >= 3


@pytest.mark.parametrize("exact", [False, True])
def test_in_the_exact_profile_logits_are_those_of_transformers(
    llama: Engine, monkeypatch: pytest.MonkeyPatch, exact: bool
) -> None:
    """Otherwise the bits would show whether an adapter is loaded, which rules out the direct forward."""
    found, direct = set[bool](), DirectForward.__call__

    def heard(self: DirectForward, *given: Any, **how: Any) -> Tensor:
        found.add(how["brief"])
        return direct(self, *given, **how)

    monkeypatch.setattr(DirectForward, "__call__", heard)
    [message] = llama.prefill([Prefill("", tokens=(5, 6, 7))])
    found.clear()
    llama.submit([Decode(parents=[message], forced=(8, 9))])
    while not llama.idle:
        llama.step(deterministic=exact)
    assert found == {not exact}


def test_what_anything_has_hooked_is_called(llama: Engine, passed: list[int]) -> None:
    model, seen = llama._model, list[Tensor]()
    part = model.network.get_submodule("model.layers.0.mlp.up_proj")
    for hooked in (part.register_forward_hook, part.register_forward_pre_hook):
        handle = hooked(lambda *about: seen.append(about[1]))
        model.forward(*given(3, model), _Asked())
        handle.remove()
    assert len(seen) == 2
    assert passed == []
    model.forward(*given(3, model), _Asked())
    assert passed == [3]


def test_hooks_by_which_the_library_hands_out_hidden_states_cost_nothing(llama: Engine, passed: list[int]) -> None:
    model = llama._model
    ids, places, _ = given(2, model)
    options = {"attending": _Asked(), "chunks": {}, "use_cache": False}
    out = model.network(input_ids=ids, position_ids=places, output_hidden_states=True, **options)
    assert len(out.hidden_states) == model.layers + 1
    model.forward(*given(2, model), _Asked())
    assert passed == [2]


def other_layer(model: Model) -> None:
    layer: Any = model.network.get_submodule("model.layers.1")
    stock = layer.forward
    layer.forward = lambda *given, **more: stock(*given, **more) * 1.0000002


def other_scale(model: Model) -> None:
    """Make a layer use a different scale in each forward."""
    attention: Any = model.network.get_submodule("model.layers.0.self_attn")
    stock, scales = attention.forward, iter((0.25, 0.5))

    def changing(*given: Any, **more: Any) -> Any:
        attention.scaling = next(scales)
        return stock(*given, **more)

    attention.forward = changing


def hooked(model: Model) -> None:
    model.network.register_forward_pre_hook(lambda *_: None)


@pytest.mark.parametrize("change", [other_layer, other_scale, hooked])
def test_a_network_that_is_not_quite_llama_keeps_its_own_forward(engines: Engines, change: Any) -> None:
    model = engines.own()._model
    model.shorten()
    assert model.direct is not None
    change(model)
    model.shorten()
    assert model.direct is None


def test_a_library_that_builds_networks_in_another_way_keeps_its_own_forward(
    llama: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(*given: Any) -> Any:
        raise AttributeError("embed_tokens")

    monkeypatch.setattr(direct_forwards, "_Layer", moved)
    assert direct_forwards.direct_forward(llama.network, llama._model._stock_logits, llama._model.vocabulary) is None


def test_a_class_that_only_has_the_name_keeps_its_own_forward(llama: Engine) -> None:
    other = type("LlamaForCausalLM", (type(llama.network),), {})
    llama.network.__class__, stock = other, type(llama.network)
    try:
        found = direct_forwards.direct_forward(llama.network, llama._model._stock_logits, llama._model.vocabulary)
    finally:
        llama.network.__class__ = stock
    assert other.__module__ == __name__
    assert found is None


@pytest.mark.parametrize(("name", "said"), [("llama", "direct"), ("gemma2", "transformers")])
def test_doctor_says_which_forward_there_is(engines: Engines, name: str, said: str) -> None:
    family = next(each for each in families() if each.name == name)
    rows = doctor.report_of(name, engines(family)).rows
    assert [row.result for row in rows if row.check == "forward"] == [said]
