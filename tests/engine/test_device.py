"""Engine tests run on the device that `AGENTCHO_TEST_DEVICE` names: no test names a device, except those about
something only one kind of device has."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcho import Engine

from ..device import DEVICE, INTERPRETER, PLACE, PROCESSOR, VISIBLE, settle

TESTS = Path(__file__).parents[1]
FOLDERS = ("engine", "tune", "serve", "choreography")
A_DEVICE = re.compile(r"(cpu|cuda|meta)(:\d+)?")
MAKERS = {"load", "doctor", "device", "DevicePlacement", "to"}
"""Calls that take a device."""
OF_ONE_KIND = {
    "engine/compiled.py": "a driver of a GPU that is not there",
    "engine/pretend.py": "GPUs that are not there: their tensors lie on the processor",
    "engine/pretended.py": "one GPU that is not there",
    "engine/test_backends.py": "what is chosen for each kind of device",
    "engine/test_device.py": "this rule",
    "engine/test_fewer_kernels.py": "weights on two GPUs that are not there",
    "engine/test_fused.py": "calls of torch's attention on a GPU that is not there",
    "engine/test_gguf.py": "frequencies of the stock rotary embedding, made by hand",
    "engine/test_lighter.py": "products of whole numbers, which processors have",
    "engine/test_loading.py": "what is compiled on a processor, which is nothing",
    "engine/test_masks.py": "what masks add on a processor",
    "engine/test_memory.py": "pools of a processor do not move, nor those of a GPU that is not there",
    "engine/test_octets.py": "sums of bytes, without a tensor",
    "engine/test_packing.py": "matrices in the order of a processor",
    "engine/test_placement.py": "which device is chosen, and where weights go",
    "engine/test_sampling.py": "what goes to a GPU that is not there",
    "engine/test_sharing.py": "an attention that only processors have",
    "engine/test_spread.py": "a model on two GPUs that are not there",
    "engine/test_stored.py": "what doctor says of each kind of device, and memory of a GPU that is not there",
    "engine/test_threads.py": "threads of a processor",
    "choreography/test_endpoint.py": "an option that is refused",
}
"""Files that may name a device, and why."""


def named(source: str) -> Iterator[int]:
    """Lines of calls that get a device by a literal name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and _name(node.func) in MAKERS:
            given = [*node.args, *(word.value for word in node.keywords if word.arg in ("device", None))]
            if any(isinstance(each, ast.Constant) and A_DEVICE.fullmatch(str(each.value)) for each in given):
                yield node.lineno


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def test_the_rule_sees_a_device_wherever_it_is_given() -> None:
    said = (
        'Engine.load(x, "cpu")\ndoctor(device="cuda:1")\nx.to("cpu")\ntorch.device("cuda")\nx.load(y, DEVICE)\nf("cpu")'
    )
    assert sorted(named(said)) == [1, 2, 3, 4]


def test_no_test_of_the_engine_names_its_device() -> None:
    files = {path.relative_to(TESTS).as_posix(): path for name in FOLDERS for path in (TESTS / name).rglob("*.py")}
    files["engines.py"] = TESTS / "engines.py"
    found = {name: list(named(path.read_text())) for name, path in files.items()}
    assert {name: lines for name, lines in found.items() if lines and name not in OF_ONE_KIND} == {}
    gone = [name for name in OF_ONE_KIND if not re.search(r"\"(cpu|cuda)", files[name].read_text())]
    assert gone == []


def test_an_engine_of_a_test_is_on_the_device_of_the_tests(llama: Engine) -> None:
    assert {weight.device for weight in llama.network.parameters()} == {PLACE}
    assert str(PLACE).startswith(DEVICE)


@pytest.mark.parametrize(
    ("device", "given", "wanted"),
    [
        (PROCESSOR, {}, {INTERPRETER: "1", VISIBLE: ""}),
        (PROCESSOR, {VISIBLE: "0,1"}, {INTERPRETER: "1", VISIBLE: ""}),
        (PROCESSOR, {INTERPRETER: "0"}, {INTERPRETER: "0"}),
        ("cuda", {}, {INTERPRETER: "0"}),
        ("cuda:1", {VISIBLE: "0,1"}, {INTERPRETER: "0", VISIBLE: "0,1"}),
    ],
)
def test_the_kernel_is_compiled_on_a_gpu_and_interpreted_elsewhere(
    device: str, given: dict[str, str], wanted: dict[str, str]
) -> None:
    settle(device, environment := dict(given))
    assert environment == wanted


PRETENDED = [f"tests/engine/test_{name}.py" for name in ("engine", "memory", "slots", "steps", "sampling", "extends")]


@pytest.mark.slow
def test_on_a_gpu_that_is_pretended_the_same_tests_pass_and_nothing_mixes_devices() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "tests.engine.pretended", *PRETENDED]
    own = {"AGENTCHO_TEST_DEVICE": "cuda", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=TESTS.parent, env=os.environ | own, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
