"""The work a GPU would get, counted without one: kernels and transfers of every kind of step at the shape of
Llama-3.1-8B, registers and loops of compiled kernels, bytes. Each count may only go down; `python -m tests.gpu` prints
them.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton

from agentcho.runner.attention import triton_paged
from agentcho.runner.attention.base import Locality
from agentcho.runner.attention.trial import tolerance
from agentcho.runner.kv.lanes import SHARE
from agentcho.runner.kv.rope import Rotation

from ..ratchets import beyond
from . import compiled, fake
from .limits import AIMS, asked, committed, of_kernels, of_spread, of_steps

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def steps() -> dict[str, Any]:
    """The counts over fake tensors. That there are any shows that no operation mixes tensors of two devices, and none
    needs values from the device."""
    if (why := fake.why_not()) is not None:
        pytest.skip(why)
    return asked("fake")


def test_no_step_asks_for_more_kernels_transfers_or_bytes_than_it_did(steps: dict[str, Any]) -> None:
    counted = of_steps(steps)
    assert beyond(counted, committed()) == []
    assert counted.keys() | of_kernels({}).keys() <= committed().keys()


def test_nothing_goes_between_devices_inside_a_decode_steps_forward(steps: dict[str, Any]) -> None:
    inside = {name: each["inside"] for name, each in steps.items() if name.startswith("a decode step")}
    assert len(inside) == 3
    assert not any(inside.values()), inside
    assert all("d2h" not in each["transfers"] for name, each in steps.items() if name in inside)


def test_every_layer_of_a_decode_step_is_attended_to_by_the_kernel(steps: dict[str, Any]) -> None:
    assert all(each["triton"] >= 32 for name, each in steps.items() if name.startswith("a decode step"))


def test_weights_store_and_rows_fit_into_a_gpu_of_80_gb(steps: dict[str, Any]) -> None:
    weights, parameters = steps["weights and an empty store"]["bytes"], 8_030_261_248
    assert 2 * parameters <= weights < 80 << 30
    assert steps["all of it"]["bytes"] < 80 << 30


def test_rows_over_8k_and_their_shadows_are_read_in_place_and_say_into_lanes_that_are_taken_once(
    steps: dict[str, Any],
) -> None:
    token = 2 * 32 * 8 * 128 * 2
    lanes, copied = fake.STORE // SHARE * token, 8192 * token
    assert steps["2 rows over 8k"]["bytes"] < 1.1 * lanes
    assert steps["2 rows over 8k and their shadows"]["bytes"] < copied / 8


def test_between_two_gpus_go_hidden_states_and_what_all_layers_share_once_a_step() -> None:
    """No operation mixes tensors of both GPUs, or there would be no counts."""
    if (why := fake.why_not()) is not None:
        pytest.skip(why)
    found = asked("spread")
    assert beyond(of_spread(found), committed()) == []
    rows, hidden, dim, words = 8, 4096, fake.DIM, 128_256
    numbers = {name: times for name, times in found["a decode step of 8 rows"].items() if "bfloat16" in name}
    assert numbers == {
        f"torch.bfloat16 (1, {rows}, {hidden})": 1,
        f"torch.bfloat16 (1, {rows}, {dim})": 2,  # cosines and sines of positions
        f"torch.bfloat16 (1, {rows}, {words})": 1,  # the logits
    }


def test_no_kernel_takes_more_registers_stack_or_instructions_than_it_did() -> None:
    if (why := compiled.why_not()) is not None:
        pytest.skip(why)
    counted, most = of_kernels(asked("compiled")), committed()
    if triton.__version__ != TRITON:  # another compiler may use a few more registers
        most = {name: number + number // 4 for name, number in most.items()}
    assert len(counted) == 3 * 14
    assert beyond(counted, most) == []


TRITON = "3.7.1"
"""The Triton version with which the kernels were measured."""


def test_a_loop_is_counted_from_its_label_to_its_last_jump() -> None:
    line = "        /*{:04x}*/                   {} ;"
    body = [line.format(16 * place, "FMUL R1, R2, R3") for place in range(3)]
    jump = line.format(64, "@P0 BRA `(.L_x_1)")
    assert compiled.longest_loop("\n".join([body[0], ".L_x_1:", *body, jump, ".L_x_2:", line.format(80, "EXIT")])) == 4


def test_what_is_aimed_at_is_counted() -> None:
    assert AIMS.keys() <= committed().keys()


def _half(pairs: int, first: int = 0) -> Rotation:
    return Rotation("half", torch.tensor([5e5 ** (-pair / pairs) for pair in range(pairs)], dtype=torch.float64), first)


REAL: dict[str, tuple[Any, ...]] = {
    "llama-3.1-8b": (torch.bfloat16, 2, 4, 128, 128, _half(64), Locality(), 128**-0.5, None),
    "float32": (torch.float32, 2, 4, 128, 128, _half(64), Locality(), 128**-0.5, None),
    "256 dimensions, a window and a cap": (
        *(torch.float32, 2, 2, 256, 256, _half(128)),
        *(Locality("sliding", 300), 256**-0.5, 50.0),
    ),
    "80 dimensions": (torch.float32, 2, 3, 80, 80, _half(40), Locality(), 0.1, None),
    "half turned, chunks": (torch.float32, 2, 7, 96, 96, _half(24), Locality("chunked", 128), 0.1, None),
}


@pytest.mark.parametrize("name", REAL)
def test_at_the_sizes_of_real_models_the_kernel_gives_what_dense_attention_gives(name: str) -> None:
    """In Triton's interpreter only; says nothing about the compiled kernel."""
    kind = triton_paged.PagedKind(torch.device("cpu"), *REAL[name])
    assert max(triton_paged._gaps(kind)) <= tolerance(kind.dtype)
