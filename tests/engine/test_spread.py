"""A model with its layers on two simulated GPUs: it gives the same results as on one device, and no operation mixes
tensors of both."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import dispatch_model
from torch import nn

from agentcho import Decode, Engine, Prefill, Sampling
from agentcho.cli import main
from agentcho.errors import ModelError
from agentcho.lab.tune.unfolding import unfold
from agentcho.protocol.call import Repair
from agentcho.reuse.top_k import TopK
from agentcho.runner.attention import flex
from agentcho.runner.graphs import CudaGraphs
from agentcho.runner.kv import gather
from agentcho.runner.kv.kv_pool import KVFormat, LayerShape, shared_tokens
from agentcho.runner.model.device import DevicePlacement, check_device_map
from agentcho.runner.model.loading import EngineSizes, prove_model
from agentcho.runner.model.model import Model, _kept, find
from agentcho.runner.model.spread_layers import move_once

from ..tune.flows import talk
from .families import Family, cell, families
from .pretend import Mixed, Pretend, put

ONE, OTHER = torch.device("cuda", 0), torch.device("cuda", 1)
LAYERS = [ONE, ONE, OTHER, OTHER]
PLACES = {
    **dict.fromkeys(("model.embed_tokens", "model.rotary_emb", "model.layers.0", "model.layers.1"), ONE),
    **dict.fromkeys(("model.layers.2", "model.layers.3", "model.norm", "lm_head"), OTHER),
}
KINDS = [family for family in families() if family.name in ("llama", "qwen3 sliding", "gemma2", "llama4_text")]
GREEDY = Sampling(temperature=0, max_tokens=6)


@pytest.fixture(params=[cell(one, quick=one.name == "llama4_text") for one in KINDS])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    family: Family = request.param
    family.save(tmp_path)
    return tmp_path


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """The devices that were waited for."""
    devices: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", devices.append)
    monkeypatch.setattr(flex, "why_not_flex", lambda device: "pretended")  # no kernels on simulated devices
    monkeypatch.setattr(gather, "serves", lambda device: False)
    return devices


@pytest.fixture
def halves(folder: Path, waited: list[torch.device]) -> Iterator[Engine]:
    """The model as `from_pretrained` places it on two GPUs: two layers on each, with hooks between."""
    loaded = Model.load(find(folder), DevicePlacement("cpu"))
    network: Any = loaded.network
    with Pretend():
        for name, device in PLACES.items():
            put(network.get_submodule(name), device)
        dispatch_model(network, {name: str(device) for name, device in PLACES.items()}, main_device=str(ONE))
        for name, device in PLACES.items():
            put(network.get_submodule(name), device)
        yield made(loaded)


@pytest.fixture
def single(folder: Path, waited: list[torch.device]) -> Iterator[Engine]:
    """The model on one GPU."""
    loaded = Model.load(find(folder), DevicePlacement("cpu"))
    with Pretend():
        put(loaded.network, ONE)
        engine = made(loaded)
        engine._runner.graphs = CudaGraphs(engine._model, engine._runner.layers, lambda forward: forward)
        yield engine


def made(loaded: Model) -> Engine:
    return Engine(*prove_model(Model(loaded.source, loaded.network, loaded.tokenizer), EngineSizes(None, 2048, 2048)))


def played(engine: Engine) -> dict[str, Any]:
    """Every kind of call: moved and reordered parents, rows side by side, choices, chunks of a long prefill beside
    decodes, repairs, and encodings that left the store."""
    a, b = engine.prefill([Prefill("we met here"), Prefill("you and me", role="system")])
    c = engine.prefill(Prefill("who asks?", parents=[b, a], offsets=[40, None]))
    said = engine.decode(
        [
            Decode("To Bob: ", parents=[a, c], sampling=GREEDY),
            Decode(parents=[c, a], sampling=GREEDY, logits=True),
            Decode(parents=[b], sampling=Sampling(temperature=0.8, top_p=0.9, seed=3, max_tokens=6)),
            Decode(parents=[b], sampling=Sampling(choices=("yes", "no"))),
            Decode(parents=[a], forced=(5, 6, 7, 8)),
        ]
    )
    beside = engine.submit([Decode(parents=[a], forced=(5,) * 8)])
    engine.step()
    long = engine.submit([Prefill("so it was " * 9, parents=[b])])
    while not engine.idle:
        engine.step()
    mended = engine.repair(Repair(c, TopK(0.3), parents=[a]))
    engine.swap_out([a, b, c])
    scores = engine.score("so be it", parents=[mended, said[0], a])
    engine.check_integrity()
    heard = [engine.message(id).tokens for id in (*said, *beside, *long, mended)]
    return {
        "heard": heard,
        "scores": scores,
        "logits": engine.logits(said[1]),
        "keys": engine.cached(mended) + engine.cached(long[0]),
    }


@pytest.mark.slow
def test_what_is_said_over_two_devices_is_what_is_said_on_one(
    folder: Path, halves: Engine, waited: list[torch.device]
) -> None:
    assert halves.store.devices == LAYERS
    found = played(halves)
    assert set(waited) == {ONE, OTHER}
    check_same(found, played(Engine.load(folder, device="cpu", store_tokens=2048)))


@pytest.mark.slow
def test_what_is_said_on_a_gpu_is_what_is_said_on_a_cpu(folder: Path, single: Engine) -> None:
    assert set(single.store.devices) == {ONE}
    check_same(played(single), played(Engine.load(folder, device="cpu", store_tokens=2048)))


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="auto would choose its GPUs")
def test_a_map_is_the_librarys_own(folder: Path) -> None:
    wanted = played(Engine.load(folder, device="cpu", store_tokens=2048))
    for places in ("auto", {"": "cpu"}):
        check_same(played(Engine.load(folder, store_tokens=2048, device_map=places)), wanted)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"device": "cpu", "device_map": "auto"},
            "device 'cpu' cannot be combined with a device map; give one of them",
        ),
        ({"device_map": "most"}, "most"),
        (
            {"device_map": {**dict.fromkeys(PLACES, "cpu"), "lm_head": "disk"}},
            "does not fit into the memory of all GPUs",
        ),
    ],
)
def test_a_map_that_cannot_be_is_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    KINDS[0].save(tmp_path)
    with pytest.raises(ModelError, match=words):
        Engine.load(tmp_path, **options)


@pytest.mark.parametrize("command", [("run", "debate"), ("doctor",)])
def test_commands_take_a_map(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: tuple[str, ...]) -> None:
    asked: list[Any] = []

    def load(*args: Any, **options: Any) -> Any:
        asked.append(options["device_map"])
        raise ModelError("asked")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Engine, "load", load)
    monkeypatch.setattr(sys, "argv", ["agentcho", *command, "--device-map", "auto"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert asked == ["auto"]


def test_what_is_kept_elsewhere_than_it_is_used_is_refused() -> None:
    check_device_map("m", {"a": 0, "b": 1})
    check_device_map("m", {"": "cpu"})
    with pytest.raises(ModelError, match="does not fit"):
        check_device_map("m", {"a": 0, "b": "cpu"})
    with pytest.raises(ModelError, match="created on a single device"):
        Engine.load("shape:qwen3-0.6b", device_map="auto")


@pytest.mark.usefixtures("waited")
def test_every_device_has_room_for_its_own_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    free = {ONE: 1 << 26, OTHER: 1 << 28}
    monkeypatch.setattr("agentcho.runner.kv.kv_pool.free_memory", free.__getitem__)
    a_token = 2 * 8 * 2 * 128 * 2  # bytes of two layers
    shapes = [LayerShape(8, 128, 128, device) for device in LAYERS]
    assert shared_tokens([KVFormat(shapes, ONE, torch.bfloat16)])[0] == (1 << 25) // a_token


def check_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found["heard"] == wanted["heard"]
    for one, other in zip(found["keys"], wanted["keys"], strict=True):
        assert all(torch.allclose(x, y, atol=1e-5) for x, y in zip(one, other, strict=True))
    for what in ("scores", "logits"):
        assert torch.allclose(found[what], wanted[what], atol=1e-4)


@pytest.mark.slow
def test_training_goes_over_two_devices_too(folder: Path, halves: Engine) -> None:
    def rows(engine: Engine) -> torch.Tensor:
        return engine.differentiable(unfold(talk(), engine, "choreographed", "enforce").segments)

    found, wanted = rows(halves), rows(Engine.load(folder, device="cpu"))
    assert found.device == ONE
    assert torch.allclose(found.cpu(), wanted, atol=1e-4)


class Given(nn.Module):
    """A layer that records its inputs."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        put(self, device)
        self.found: dict[str, Any] = {}

    def forward(self, hidden: torch.Tensor, **given: Any) -> None:
        self.found = given


def test_what_all_layers_are_given_goes_to_a_gpu_once_a_forward() -> None:
    with Pretend():
        layers = [Given(ONE if number < 2 else OTHER) for number in range(4)]
        network = nn.ModuleList(layers)
        move_once(network, ["", *map(str, range(4))])
        for _ in range(2):
            hidden, places = torch.zeros(3, device=ONE), torch.arange(3, device=ONE)
            turns = torch.ones(3, device=ONE), torch.zeros(3, device=ONE)
            for layer in layers:
                layer(hidden, places=places, turns=turns, other=7)
            first, second, third, fourth = (layer.found for layer in layers)
            assert first == second == {"places": places, "turns": turns, "other": 7}
            assert [third["places"].device, third["turns"][1].device, third["other"]] == [OTHER, OTHER, 7]
            assert third["places"] is fourth["places"]
            assert [*map(id, third["turns"])] == [*map(id, fourth["turns"])]
            assert third["turns"][0].tolist() == [1.0] * 3


def test_rows_of_logits_are_named_without_waiting_for_the_device_where_they_can_be() -> None:
    assert _kept(torch.arange(3), 3) == 0
    assert _kept(torch.arange(0), 3) == slice(0, 0)
    assert _kept(torch.tensor([1]), 3) == [1]


def test_the_pretence_notices_what_is_mixed() -> None:
    with Pretend():
        one, other = torch.zeros(4, 4, device=ONE), torch.zeros(4, 4, device=OTHER)
        place = torch.tensor([1], device=OTHER)
        for wrong in (
            lambda: one + other,
            lambda: torch.cat([one, other]),
            lambda: one[place],
            lambda: one.index_select(0, place),
            lambda: one.__setitem__(place.to(ONE), other[:1]),
        ):
            with pytest.raises(Mixed):
                wrong()
        one[:2] = other[:2]
        assert (one @ one).device == one[torch.tensor([1])].device == ONE
