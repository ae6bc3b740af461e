"""Where weights go, in which dtype, and the errors if there is no room. No GPU is needed: "meta" stands for a device
other than the CPU."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from agentcho import Decode, Engine, Prefill
from agentcho.errors import ModelError
from agentcho.lab.commands.workflows import kind_of
from agentcho.runner.kv.kv_pool import KVFormat, LayerShape, shared_tokens
from agentcho.runner.model import device
from agentcho.runner.model import model as models
from agentcho.runner.model.device import (
    SMALL,
    DevicePlacement,
    device_of,
    dtype_of,
    gpu_name,
    reorders_bfloat16,
    synchronize,
)
from agentcho.runner.model.model import Model, find
from agentcho.runner.model.shapes import SHAPES
from agentcho.runner.reuse_check import check_config

from .families import llama_family

CPU, CUDA, META = torch.device("cpu"), torch.device("cuda"), torch.device("meta")
SHAPE = "shape:qwen3-0.6b"


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(device, "_add_on", lambda where: None)


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three GiB are free on every GPU."""
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3 << 30, 80 << 30))


@pytest.mark.usefixtures("two_gpus")
def test_a_device_has_a_name_and_auto_is_cuda_where_there_is_one() -> None:
    assert device_of("auto") == CUDA
    assert device_of("cuda:1") == torch.device("cuda", 1)
    for wrong in ("cuda:2", "gpu"):
        with pytest.raises(ModelError, match=wrong):
            device_of(wrong)


@pytest.mark.parametrize("name", ["mps", "xpu:0", "vulkan"])
def test_a_kind_of_device_that_was_never_tried_is_refused_in_a_sentence(name: str) -> None:
    with pytest.raises(ModelError, match=f"device '{name}' is of a kind .* never been run on; give auto, cpu, cuda"):
        device_of(name)


def test_a_torch_without_onednn_has_no_kernels_for_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.setattr(torch.ops, "mkldnn", None)
    assert not reorders_bfloat16()


def test_auto_numbers_are_the_checkpoints_own_on_cuda_and_bfloat16_where_there_is_none() -> None:
    assert dtype_of("auto", CPU) is dtype_of("auto", CPU, random=True) is torch.float32
    assert dtype_of("auto", CUDA) == "auto"
    assert dtype_of("auto", CUDA, random=True) is torch.bfloat16
    assert dtype_of("float16", CUDA, random=True) is torch.float16
    with pytest.raises(ModelError, match="int8"):
        dtype_of("int8", CPU)


@pytest.mark.parametrize("there", [False, True])
def test_auto_numbers_on_a_cpu_are_bfloat16_for_large_models_where_it_has_them(
    there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "has_bfloat16", lambda: there)
    assert dtype_of("auto", CPU, weights=SMALL) is torch.float32
    assert dtype_of("auto", CPU, weights=SMALL + 1) is (torch.bfloat16 if there else torch.float32)
    assert dtype_of("auto", META, weights=SMALL + 1) is dtype_of("float32", CPU, weights=SMALL + 1) is torch.float32


def test_whoever_asks_for_bfloat16_where_it_is_emulated_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama_family().save(tmp_path)
    monkeypatch.setattr(device, "has_bfloat16", lambda: False)
    with pytest.warns(UserWarning, match="bfloat16 is emulated on this processor.* float32"):
        Model.load(find(tmp_path), DevicePlacement("cpu", "bfloat16"))
    with warnings.catch_warnings(action="error"):
        Model.load(find(tmp_path), DevicePlacement("cpu"))
        Model.load(find(tmp_path), DevicePlacement("meta", "bfloat16"))
        monkeypatch.setattr(device, "has_bfloat16", lambda: True)
        Model.load(find(tmp_path), DevicePlacement("cpu", "bfloat16"))


@pytest.mark.parametrize(("capability", "told"), [((7, 5), True), ((8, 0), False)])
def test_a_gpu_without_bfloat16_is_told_so(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder, capability: tuple[int, int], told: bool
) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: capability)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "Tesla T4")
    for dtype in (torch.float16, torch.bfloat16):
        device.warn_emulated(dtype, torch.device("cuda"))
    found = ["Tesla T4 has no bfloat16 arithmetic, and emulates it; give dtype float16"]
    assert [str(each.message) for each in recwarn] == found * told


def test_a_shape_is_never_drawn_in_emulated_numbers_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for there, kind in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(device, "has_bfloat16", lambda there=there: there)
        assert kind_of("shape:qwen3-0.6b", "auto") == kind
    assert (kind_of("shape:qwen3-0.6b", "bfloat16"), kind_of("understudy", "auto")) == ("bfloat16", "auto")


def test_the_numbers_that_were_taken_are_those_of_the_weights_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "has_bfloat16", lambda: True)
    llama_family().save(tmp_path)
    whole = sum(each.nbytes for each in llama_family().build().parameters())
    for small, taken in ((whole, "float32"), (whole - 1, "bfloat16")):
        monkeypatch.setattr(device, "SMALL", small)
        with Engine.load(tmp_path, device="cpu") as engine:
            assert engine.fingerprint["dtype"] == taken
    with Engine.load(tmp_path, device="cpu", dtype="float32") as engine:
        assert engine.fingerprint["dtype"] == "float32"


@pytest.mark.parametrize("name", list(SHAPES))
def test_a_shape_has_as_many_weights_as_its_name_says_and_is_one_that_the_gate_lets_through(name: str) -> None:
    source = find(f"shape:{name}")
    check_config(source, None)
    network = Model.load(source, DevicePlacement("meta", "bfloat16")).network
    counts = {"qwen3-0.6b": 596_049_920, "llama-3.2-1b": 1_235_814_400, "llama-3.1-8b": 8_030_261_248}
    assert sum(weight.numel() for weight in network.parameters()) == counts[name]


def test_weights_are_read_and_drawn_where_they_stay(tmp_path: Path) -> None:
    llama_family().save(tmp_path)
    for name in (tmp_path, SHAPE):
        model = Model.load(find(name), DevicePlacement("meta", "bfloat16"))
        assert (model.device, model.dtype) == (META, torch.bfloat16)
        assert {(weight.device, weight.dtype) for weight in model.network.parameters()} == {(META, torch.bfloat16)}


@pytest.mark.usefixtures("two_gpus", "room")
def test_the_device_that_was_asked_for_is_what_the_library_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[Any] = []

    def read(*path: str, **options: Any) -> Any:
        told.append((options["device_map"], options["dtype"]))
        raise torch.OutOfMemoryError("CUDA out of memory")

    llama_family().save(tmp_path)
    monkeypatch.setattr(
        models, "_loader", lambda: SimpleNamespace(from_pretrained=read, from_config=AutoModelForCausalLM.from_config)
    )
    for name in ("auto", "cuda:1", "cpu"):
        with pytest.raises(ModelError, match="does not fit into the memory of its device"):
            Model.load(find(tmp_path), DevicePlacement(name))
    assert told == [({"": CUDA}, "auto"), ({"": torch.device("cuda", 1)}, "auto"), (None, torch.float32)]


@pytest.mark.usefixtures("two_gpus", "room")
@pytest.mark.parametrize(("said", "bytes_each"), [("bfloat16", 2), ("float32", 4), (None, 2)])
def test_the_room_for_a_checkpoint_is_that_of_its_own_dtype(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str | None, bytes_each: int
) -> None:
    """Which is not changed by counting its weights: the library writes the dtype of what it makes into the config."""
    sizes = list[int]()

    def check(name: str, weights: int, device: torch.device) -> None:
        sizes.append(weights)
        raise ModelError("there is no room")

    llama_family().save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"dtype": said}
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(models, "check_room", check)
    source = find(tmp_path)
    with pytest.raises(ModelError, match="there is no room"):
        Model.load(source, DevicePlacement("cuda"))
    assert source.config.dtype == (None if said is None else getattr(torch, said))
    assert sizes == [bytes_each * sum(weight.numel() for weight in llama_family().build().parameters())]


@pytest.mark.usefixtures("two_gpus", "room")
def test_a_shape_that_does_not_fit_is_refused_before_anything_is_drawn() -> None:
    told = r"qwen3-0.6b has 2.4 GB of weights, and needs 1.1 GB.*cuda.*3.2 GB of 85.9 GB, and the rest is in use; give"
    with pytest.raises(ModelError, match=told):
        Engine.load(SHAPE, device="cuda", dtype="float32")


UNUSABLE = [
    (
        "CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCompile with `TORCH_USE_CUDA_DSA`",
        "another process has it for itself alone; wait until that ends, .* give another GPU, as cuda:1",
    ),
    (
        "CUDA error: no kernel image is available for execution on the device\nmore",
        r"this torch has no kernels for it \(it is of sm_120; torch has sm_80, sm_90\); install a torch",
    ),
    (
        "CUDA out of memory. Tried to allocate 2.00 MiB.",
        "its memory is full; end the processes that `nvidia-smi` lists",
    ),
    (
        "CUDA driver error: unknown error",
        r"its driver fails \(CUDA driver error: unknown error\); see what `nvidia-smi` says",
    ),
    ("CUDA error: an illegal memory access was encountered\nx", r"its driver fails \(CUDA error: an illegal memory"),
]


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("said", "told"), UNUSABLE, ids=["busy", "unknown kind", "full", "driver", "broken"])
def test_a_gpu_that_fails_at_something_trivial_is_refused_in_one_line_before_anything_is_read(
    said: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(where: torch.device) -> None:
        raise RuntimeError(said)

    llama_family().save(tmp_path)
    monkeypatch.setattr(device, "_add_on", fails)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda where: (12, 0))
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_80", "sm_90"])
    monkeypatch.setattr(models, "_loader", lambda: pytest.fail("read"))
    for name in ("cuda", "auto"):
        with pytest.raises(ModelError, match=f"device 'cuda' cannot be used: {told}") as refused:
            Engine.load(tmp_path, device=name)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("built", "said", "told"),
    [
        (None, "", "this torch is built without CUDA; install one that is built for it, or give auto or cpu"),
        (
            "13.0",
            "The NVIDIA driver on your system is too old (found version 11040). Please update it at http://x",
            r"The NVIDIA driver on your system is too old \(found version 11040\); see what `nvidia-smi`",
        ),
        ("13.0", "", "its driver shows none .CUDA_VISIBLE_DEVICES may hide them.; give auto or cpu"),
    ],
)
def test_where_there_is_no_gpu_it_is_said_why(
    built: str | None, said: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin() -> None:
        if said:
            raise RuntimeError(said)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", begin)
    monkeypatch.setattr(torch.version, "cuda", built)
    with pytest.raises(ModelError, match=f"no device 'cuda' on this machine: {told}"):
        device_of("cuda")


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_that_is_not_among_those_that_there_are_is_refused_with_their_names() -> None:
    with pytest.raises(ModelError, match="no device 'cuda:2' on this machine: it has 2 GPUs; give cuda:0 to cuda:1"):
        device_of("cuda:2")


@pytest.mark.usefixtures("room")
def test_the_store_has_half_of_what_is_free_on_cuda() -> None:
    layers = [LayerShape(2, 4, 4)] * 3
    assert shared_tokens([KVFormat(layers, CUDA, torch.bfloat16)])[0] == min(1 << 22, (3 << 29) // (3 * 2 * 8 * 2))
    assert shared_tokens([KVFormat([LayerShape(8, 128, 128)] * 32, CUDA, torch.bfloat16)])[0] == (3 << 29) // (1 << 17)
    assert shared_tokens([KVFormat([LayerShape(8, 128, 128)] * 32, CPU, torch.bfloat16)])[0] == (4 << 30) // (1 << 17)


def test_a_step_waits_for_its_device_whatever_was_asked(llama: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[torch.device] = []
    monkeypatch.setattr(llama._runner, "asynchronous", True)
    monkeypatch.setattr(llama._runner, "_devices", (CPU,))
    monkeypatch.setattr("agentcho.runner.runner.synchronize", lambda *devices: waited.extend(devices))
    read = llama.prefill([Prefill("words")])
    said = llama.decode([Decode(parents=read, forced=(5, 6))])
    assert waited == [CPU] * 5  # the prefill; opening, two tokens and the closing
    llama.release([*read, *said])


def test_a_gpu_has_a_name_and_is_waited_for_and_a_cpu_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"the one at {device}")
    assert (gpu_name(CPU), gpu_name(CUDA)) == ({}, {"gpu": "the one at cuda"})
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    synchronize(CPU)
    synchronize(torch.device("cuda", 1))
    assert waited == [torch.device("cuda", 1)]


@pytest.mark.parametrize(("said", "allowed"), [("1048576\n", 1 << 20), ("max\n", None), (None, None)])
def test_a_container_has_what_it_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None, allowed: int | None
) -> None:
    monkeypatch.setattr(device, "LIMITS", ())
    whole = device.free_memory(torch.device("cpu"))
    limit = tmp_path / "memory.max"
    if said is not None:
        limit.write_text(said)
    monkeypatch.setattr(device, "LIMITS", (limit,))
    assert device.free_memory(torch.device("cpu")) == (allowed or whole)


@pytest.mark.parametrize("context", [15, 0, -5])
def test_too_few_positions_are_refused_before_a_model_is_looked_for(context: int) -> None:
    with pytest.raises(ModelError, match=rf"context={context}: .* give 16 or more"):
        Engine.load("no such model", context=context)
